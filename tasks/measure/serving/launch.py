"""One launch: a fresh server under one arm, proved, loaded or profiled, stopped, and its capture written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tilewatch.tasks.measure.run import Outcome, without_secrets
from tilewatch.tasks.measure.serving import verify
from tilewatch.tasks.measure.serving.capture import (
    LaunchFacts,
    Record,
    read_outcome,
    remove_partial,
    write_capture,
    write_json,
)
from tilewatch.tasks.measure.serving.errors import LaunchError, Stage
from tilewatch.tasks.measure.serving.keeper import name_of
from tilewatch.tasks.measure.serving.kept import Kept, StartError, kept
from tilewatch.tasks.measure.serving.load import Loader
from tilewatch.tasks.measure.serving.processes import free_port, is_free, listeners, tree
from tilewatch.tasks.measure.serving.server import REFERENCE, ServerOf, command_of
from tilewatch.tasks.plan.order import seed_for
from tilewatch.tasks.plan.serving_plan import Launch, ServingPlan


def run_launch(
    plan: ServingPlan,
    launch: Launch,
    folder: Path,
    facts: LaunchFacts,
    *,
    port: int | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Outcome:
    """Run one launch into ``folder``; a capture that is there already is returned as it is.

    A launch that fails is a capture of status failed. Whatever ends this function, no process of the launch
    survives it; interrupted, it leaves no manifest. Raises MeasureError for a folder that is none of ours.
    """
    if (folder / "manifest.json").is_file():
        return read_outcome(folder)
    remove_partial(folder)
    (folder / "log").mkdir(parents=True)
    record = Record(load_average={"before": os.getloadavg()[0]})
    run = _Run(plan, launch, folder, facts, record, on_stage, time.monotonic() + plan.launch_limit_s)
    try:
        run.all(free_port() if port is None else port)
    except LaunchError as error:
        record.failure = error
    except StartError as error:
        record.failure = LaunchError("start", str(error))
    record.load_average["after"] = os.getloadavg()[0]
    write_capture(plan, launch, folder, facts, record)
    return read_outcome(folder)


class _Run:
    """The stages of one launch, in order."""

    def __init__(
        self, plan: ServingPlan, launch: Launch, folder: Path, facts: LaunchFacts, record: Record,
        on_stage: Callable[[str], None], deadline: float,
    ) -> None:  # fmt: skip
        self._plan, self._launch, self._folder, self._facts = plan, launch, folder, facts
        self._record, self._on_stage, self._deadline = record, on_stage, deadline
        self._log = folder / "log" / "server.log"

    def all(self, port: int) -> None:
        """Start to stop. Raises LaunchError or StartError."""
        self._stage("start")
        if not is_free(port):
            owners = ", ".join(f"{name_of(p)} (pid {p})" for p in sorted(listeners(port))) or "a process"
            raise LaunchError("start", f"port {port} is taken by {owners}")
        record, arm = self._record, self._plan.arms[self._launch.arm]
        record.port = port
        record.command = command_of(
            [*self._plan.server["command"], *arm["arguments"]], self._placeholders(port)
        )
        record.environment = {**self._plan.server["environment"], **arm["environment"]}
        mark = f"{self._facts.run_id}-{self._launch.name}-{record.started_ns}"
        inherited = () if self._facts.lock_fd < 0 else (self._facts.lock_fd,)
        grace_s = float(self._plan.server["stop_grace_s"])
        environment = {**without_secrets(self._facts.variables), **record.environment}
        begun_ns = time.perf_counter_ns()
        with kept(record.command, environment, mark, self._log, self._log, grace_s, inherited) as process:
            record.pid = process.pid
            server = ServerOf(process, port, self._plan.server)
            try:
                self._serve(server, begun_ns, mark)
            finally:
                server.close()
                self._stop(process, grace_s)

    def _serve(self, server: ServerOf, begun_ns: int, mark: str) -> None:
        record, plan, launch = self._record, self._plan, self._launch
        self._stage("ready")
        server.wait_until_ready(self._left_s())
        record.ready_after_ns = time.perf_counter_ns() - begun_ns
        self._stage("verify")
        record.info_before = server.info()
        self._prove(server)
        record.process_tree = [{"pid": p, "name": name_of(p)} for p in tree(server.process.pid)]
        loader = self._loader(mark)
        self._stage("warm_up")
        loader.warm_up(server, seed_for(launch.seed, "warm_up"), self._left_s())
        record.info_before = server.info() or record.info_before
        if launch.role == "profile":
            self._stage("profile")
            self._profile(server, loader)
        else:
            self._stage("load")
            for index in range(plan.repeats):
                loader.repeat(server, index, seed_for(launch.seed, "repeat", index), self._left_s())
                record.repeats += 1
        record.info_after = server.info()

    def _prove(self, server: ServerOf) -> None:
        record = self._record
        record.checks = verify.verify(
            self._plan.arms[self._launch.arm]["expect"],
            arm=self._launch.arm,
            info=record.info_before,
            port=record.port,
            pid=server.process.pid,
            log=self._log,
        )
        if wrong := [check for check in record.checks if not check.ok]:
            raise LaunchError("verify", f"the arm is not proved: {'; '.join(c.sentence for c in wrong)}")

    def _profile(self, server: ServerOf, loader: Loader) -> None:
        folder = self._folder / "profiler"
        folder.mkdir()
        server.start_profile(folder)
        seed = seed_for(self._launch.seed, "repeat", 0)
        loader.profiled(server, seed, self._plan.profile_prompts, self._left_s())
        server.stop_profile(folder)
        self._record.repeats = 1

    def _loader(self, mark: str) -> Loader:
        load = {**self._plan.load, "vocabulary": self._plan.server["vocabulary"]}
        write_json(self._folder / "load.json", load)
        plan = self._plan
        return Loader(plan.client, plan.client_rules, load, self._folder, without_secrets(None), mark)

    def _stop(self, process: Kept, grace_s: float) -> None:
        if self._record.failure is None:
            self._on_stage("stop")
        process.stop(grace_s)
        self._record.exit_code = process.code
        self._record.killed_at_stop = process.killed

    def _stage(self, stage: Stage) -> None:
        self._record.stage = stage
        self._on_stage(stage)

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            limit = self._plan.launch_limit_s
            raise LaunchError(self._record.stage, f"the launch took longer than {limit} s")
        return left

    def _placeholders(self, port: int) -> dict[str, str]:
        variables = {name: value or "" for name, value in self._plan.server["variables"].items()}
        return {
            **variables,
            "measure_python": self._facts.measure_python,
            "reference_server": str(REFERENCE),
            "port": str(port),
            "arm": self._launch.arm,
            "agent": self._plan.agent,
        }
