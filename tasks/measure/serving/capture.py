"""The capture of one launch: what is recorded on the way, and the files that it becomes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewatch.tasks.collect.manifest import write_manifest
from tilewatch.tasks.measure.run import MeasureError, Outcome
from tilewatch.tasks.measure.serving.errors import LaunchError, Stage
from tilewatch.tasks.measure.serving.server import last_lines
from tilewatch.tasks.measure.serving.verify import Check
from tilewatch.tasks.measure.serving.verify import document as verification
from tilewatch.tasks.plan.serving_plan import Launch, ServingPlan

SCHEMA_VERSION = 1
SERVER_LOG = "log/server.log"
_OF_A_CAPTURE = {
    "log", "profiler", "stdout.log", "stderr.log", "results.jsonl", "warm_up.jsonl", "load.json",
    "launch.json", "capture.json", "environment.json", "manifest.json.new",
}  # fmt: skip


@dataclass(frozen=True)
class LaunchFacts:
    """What a launch is told of its run: identity, lease, build and device, and the interpreter of servers.

    ``lock_fd`` is the descriptor of the device lock, held until nothing of the launch is left; −1 for none.
    ``variables`` are all that server and client see, this process's own where None.
    """

    run_id: str
    lease_id: str
    build: Mapping[str, str]
    components: Mapping[str, str]
    device: Mapping[str, Any]
    evidence: str
    measure_python: str
    variables: Mapping[str, str] | None = None
    lock_fd: int = -1


@dataclass
class Record:
    """What is known of a launch so far."""

    stage: Stage = "start"
    started_ns: int = field(default_factory=time.time_ns)
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    pid: int | None = None
    process_tree: list[dict[str, Any]] = field(default_factory=list)
    ready_after_ns: int | None = None
    checks: list[Check] = field(default_factory=list)
    info_before: dict[str, Any] = field(default_factory=dict)
    info_after: dict[str, Any] = field(default_factory=dict)
    repeats: int = 0
    exit_code: int | None = None
    killed_at_stop: list[dict[str, Any]] = field(default_factory=list)
    load_average: dict[str, float] = field(default_factory=dict)
    failure: LaunchError | None = None


def write_capture(
    plan: ServingPlan, launch: Launch, folder: Path, facts: LaunchFacts, record: Record
) -> None:
    """Write the documents of a launch that ended, then its manifest, which makes it a capture."""
    write_json(folder / "capture.json", _capture(plan, launch, facts, record))
    write_json(folder / "environment.json", _environment(facts, record))
    write_json(folder / "launch.json", _launch(plan, launch, folder, record))
    for name in ("warm_up.jsonl",):
        (folder / name).unlink(missing_ok=True)
    write_manifest(folder)


def read_outcome(folder: Path) -> Outcome:
    """How the launch of a finished capture ended."""
    capture = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
    tail = "\n".join(last_lines(folder / SERVER_LOG)) if capture["status"] == "failed" else ""
    return Outcome(capture["status"], folder, capture["failure_reason"], tail, True)


def remove_partial(folder: Path) -> None:
    """Remove what an interrupted launch left. Raises MeasureError for a folder that none of ours wrote."""
    if not folder.exists():
        return
    if strange := sorted(entry.name for entry in folder.iterdir() if entry.name not in _OF_A_CAPTURE):
        raise MeasureError(f"{folder} is not a capture (it holds {strange[0]}); choose another folder")
    shutil.rmtree(folder)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write one JSON document."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _capture(plan: ServingPlan, launch: Launch, facts: LaunchFacts, record: Record) -> dict[str, Any]:
    reason = None if record.failure is None else f"{record.failure.stage}: {record.failure}"
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": facts.run_id,
        "experiment": plan.experiment,
        "experiment_name": plan.experiment_name,
        "arm": launch.arm,
        "role": "main",
        "kind": launch.role,
        "process_index": launch.process_index,
        "block": launch.block,
        "seed": launch.seed,
        "agent": plan.agent,
        "evidence": facts.evidence,
        "status": "complete" if record.failure is None else "failed",
        "failure_reason": reason,
        "build": dict(facts.build),
        "plan_hash": plan.plan_hash,
        "method": dict(plan.method),
        "method_hash": plan.method_hash,
        "method_version": plan.method["method_version"],
        "lease_id": facts.lease_id,
        "started_ns": record.started_ns,
        "ended_ns": max(time.time_ns(), record.started_ns),
        "sample_count": 0,
        "discarded_count": 0,
        "argv": record.command,
        "environment": record.environment,
    }


def _environment(facts: LaunchFacts, record: Record) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "device": dict(facts.device),
        "build": {**facts.build, "components": dict(facts.components)},
        "load_average": record.load_average,
    }


def _launch(plan: ServingPlan, launch: Launch, folder: Path, record: Record) -> dict[str, Any]:
    """``launch.json``: which server ran, what proved its arm, under which load, and why it failed."""
    failure = record.failure
    return {
        "schema_version": SCHEMA_VERSION,
        "arm": launch.arm,
        "role": launch.role,
        "launch_index": launch.process_index,
        "block": launch.block,
        "server": {
            "kind": plan.server_kind,
            "command": record.command,
            "environment": record.environment,
            "port": record.port,
            "pid": record.pid,
            "process_tree": record.process_tree,
            "exit_code": record.exit_code,
            "killed_at_stop": record.killed_at_stop,
        },
        "ready_after_ns": record.ready_after_ns,
        "verification": verification(record.checks),
        "server_info_before": record.info_before,
        "server_info_after": record.info_after,
        "client": {"name": plan.client.name, "version": plan.client.version},
        "load": {**plan.load, "load_id": plan.load_id, "repeats": plan.repeats},
        "repeats_completed": record.repeats,
        "forced_differences": list(plan.arms[launch.arm]["forced_differences"]),
        "failure": None
        if failure is None
        else {
            "stage": failure.stage,
            "reason": str(failure),
            "last_log_lines": last_lines(folder / SERVER_LOG),
        },
    }
