"""A whole simulated run in memory and on disk: a run document and the captures of all its processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewatch.tasks.measure.method import method_hash
from tilewatch.tasks.plan.plan import Plan, Process
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.simulate.builds import SimulatedBuild, SimulationError, simulated_build
from tilewatch.tasks.simulate.capture import AGENT, DEVICE_PREFIX, EVIDENCE, device_facts, write_capture

PROCESS_NS = 1_000_000_000
METHOD: Mapping[str, Any] = {
    "method_version": 1,
    "timer": "cost model",
    "warm_up": "three rounds",
    "cache": "not modelled",
    "launch_mode": "eager",
    "threads": 1,
    "activation": "hot",
    "profiler": "cost model",
}
"""How simulated numbers are taken; its hash keeps them apart from every measured method."""


def lease_of(seed: int) -> str:
    """The simulated lease of a seed: runs of one seed share the state of their device, as side by side."""
    return f"simulated-{seed}"


def run_document(
    build: SimulatedBuild, plans: Mapping[str, Plan], *, run_id: str, started_ns: int, preset: str, seed: int,
    command: str = "", selection: str = "", method: Mapping[str, Any] = METHOD,
) -> RunDocument:  # fmt: skip
    """The document of a simulated run of ``plans`` on ``build``."""
    facts = device_facts(build)
    return RunDocument(
        run_id=run_id,
        started_ns=started_ns,
        command=command,
        agent=AGENT,
        evidence=EVIDENCE,
        preset=preset,
        seed=seed,
        build=build.label,
        build_id=build.build_id,
        components=build.identity,
        host=facts["host"],
        device=facts["device"],
        device_class=facts["device_class"],
        method=dict(method),
        method_hash=method_hash(method),
        plans=dict(plans),
        selection=selection,
    )


def build_of(document: RunDocument) -> SimulatedBuild:
    """The build that ``document`` was planned for. Raises SimulationError where builds.yaml changed since."""
    build = simulated_build(document.build, document.device.removeprefix(DEVICE_PREFIX))
    if build.build_id != document.build_id:
        raise SimulationError(f"simulated build {document.build} changed since run {document.run_id} began")
    return build


def simulate_process(
    document: RunDocument, letter: str, process: Process, folder: Path, build: SimulatedBuild,
    die: int | None = None,
) -> None:  # fmt: skip
    """Write the capture of one process of ``document``; ``die`` is one of several devices."""
    plan = document.plans[letter]
    facts = {
        "run_id": document.run_id,
        "lease_id": lease_of(document.seed),
        "build": {"label": document.build, "build_id": document.build_id},
        "method": dict(document.method),
        "method_hash": document.method_hash,
        "lock_path": "",
        **({} if die is None else {"die": die}),
    }
    started_ns = document.started_ns + PROCESS_NS * plan.processes.index(process)
    write_capture(plan.document(process, facts), folder, build, started_ns)


def simulate_run(
    document: RunDocument, build: SimulatedBuild, root: Path
) -> dict[str, list[tuple[Path, str]]]:
    """Write every capture of ``document`` below ``root``; by experiment, folders and raw prefixes."""
    captures: dict[str, list[tuple[Path, str]]] = {}
    for letter, plan in document.plans.items():
        captures[letter] = []
        for process in plan.processes:
            folder = root / letter / process.name
            simulate_process(document, letter, process, folder, build)
            captures[letter].append((folder, f"raw/{letter}/{document.build}/{process.name}"))
    return captures
