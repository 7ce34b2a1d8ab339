"""Serving experiments with their side effects: which client loads, which build is there, one launch."""

from __future__ import annotations

import json
from pathlib import Path

from tilewatch.infra.builds import BuildChangedError
from tilewatch.infra.lease import Lease
from tilewatch.infra.logs import event
from tilewatch.infra.progress import current
from tilewatch.infra.settings import Settings
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.collect.manifest import read_manifest
from tilewatch.tasks.measure.environment import of_facts
from tilewatch.tasks.measure.run import Description, Outcome, describe
from tilewatch.tasks.measure.serving.capture import LaunchFacts
from tilewatch.tasks.measure.serving.launch import run_launch
from tilewatch.tasks.measure.serving.load import BUILTIN, sglang_client
from tilewatch.tasks.plan.plan import PlanError
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.plan.serving_plan import Client, Launch

STAGES = 6


def client_of(settings: Settings) -> Client:
    """SGLang's client of ``sglang_python``, or of ``measure_python`` where it has it; else the built-in one.

    Raises PlanError if ``sglang_python`` is set and has no SGLang.
    """
    if settings.sglang_python is None:
        return sglang_client([str(settings.measure_python)]) or BUILTIN
    found = sglang_client([str(settings.sglang_python)])
    if found is None:
        raise PlanError(
            f"sglang_python: {settings.sglang_python} has no SGLang; unset it, or install it there"
        )
    return found


def present(settings: Settings, document: RunDocument) -> Description:
    """Device and build that servers start on now. Raises BuildChangedError if the run has another."""
    environment = of_facts(document.environment)
    python = (environment and environment.python) or str(settings.measure_python)
    found = describe(python, document.agent, environment.variables() if environment else None)
    if found.build_id != document.build_id:
        raise BuildChangedError(
            f"the build is {found.build_id} now and run {document.run_id} is of {document.build_id}",
            "Install the build of the run, or start a new run",
        )
    return found


def launch_server(
    settings: Settings, folder: RunFolder, letter: str, launch: Launch, lease: Lease, found: Description
) -> Outcome:
    """One launch of the run into its capture; a launch that failed is said, and the next may begin."""
    document, told = folder.document, 0

    def on_stage(stage: str) -> None:
        nonlocal told
        told += 1
        current().advance(f"{letter} {launch.name}: {stage}", 1 / STAGES if told < STAGES else 0.0)

    outcome = run_launch(
        document.serving[letter],
        launch,
        folder.capture_folder(letter, launch),
        _facts(settings, document, lease, found),
        on_stage=on_stage,
    )
    current().advance(f"{letter} {launch.name}", 1.0 - min(told, STAGES - 1) / STAGES)
    if outcome.status != "complete":
        current().note(f"{letter} {launch.name}: {outcome.status}: {outcome.reason}")
    event(
        "launched", experiment=letter, launch=launch.name, status=outcome.status, reason=outcome.reason,
        capture_id=read_manifest(outcome.capture_dir).capture_id, lease_id=lease.lease_id,
    )  # fmt: skip
    return outcome


def launch_row(letter: str, launch: Launch, outcome: Outcome) -> dict[str, str | float | None]:
    """What became of one launch, for a table that people read; output in token/s of the first repeat."""
    first = _first_result(outcome.capture_dir / "results.jsonl") if launch.role == "timing" else {}
    return {
        "experiment": letter,
        "arm": launch.arm,
        "role": launch.role,
        "launch": launch.process_index,
        "status": outcome.status,
        "reason": outcome.reason,
        "mean_ttft_ms": first.get("mean_ttft_ms"),
        "mean_tpot_ms": first.get("mean_tpot_ms"),
        "output_token_per_s": first.get("output_throughput"),
    }


def _first_result(path: Path) -> dict[str, float | None]:
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8") as stream:
        result: dict[str, float | None] = json.loads(stream.readline())
    return result


def _facts(settings: Settings, document: RunDocument, lease: Lease, found: Description) -> LaunchFacts:
    environment = of_facts(document.environment)
    return LaunchFacts(
        run_id=document.run_id,
        lease_id=lease.lease_id,
        build={"label": document.build, "build_id": document.build_id},
        components=dict(document.components),
        device={
            "host": found.host,
            "device": found.device,
            "device_class": found.device_class,
            "cores": found.cores,
            "governor": found.governor,
            **found.facts,
        },
        evidence=document.evidence,
        measure_python=(environment and environment.python) or str(settings.measure_python),
        variables=environment.variables() if environment else None,
        lock_fd=lease.descriptor,
    )
