"""The agent ``simulated`` in the pipeline: a run document without a device, captures without a process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tilewatch.data_contracts.errors import USAGE, TilewatchError
from tilewatch.infra import spool
from tilewatch.infra.progress import current
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.measure.run import Outcome
from tilewatch.tasks.plan.plan import Plan, Process
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.simulate.builds import SimulatedBuild, SimulationError, simulated_build
from tilewatch.tasks.simulate.sweep import build_of, run_document, simulate_process

AGENT = "simulated"


class SimulatedBuildError(TilewatchError):
    """A build or SoC that cannot be simulated."""

    exit_code = USAGE


def chosen_build(label: str | None, soc: str) -> SimulatedBuild:
    """The simulated build of a request. Raises SimulatedBuildError naming those that exist."""
    try:
        return simulated_build(label, soc)
    except (SimulationError, PredictError) as error:
        raise SimulatedBuildError(str(error), "Choose one with --build and --soc") from error


def simulated_document(
    build: SimulatedBuild, plans: Mapping[str, Plan], *, preset: str, seed: int, command: str, selection: str
) -> RunDocument:
    """The document of a new simulated run."""
    return run_document(
        build,
        plans,
        run_id=spool.new_run_id(),
        started_ns=time.time_ns(),
        preset=preset,
        seed=seed,
        command=command,
        selection=selection,
    )


def simulated_outcome(folder: RunFolder, experiment: str, process: Process, die: int) -> Outcome:
    """Write the capture of one process on device number ``die``.

    Raises SimulatedBuildError where the build is not what it was.
    """
    target: Path = folder.capture_folder(experiment, process)
    try:
        simulate_process(folder.document, experiment, process, target, build_of(folder.document), die)
    except (SimulationError, PredictError) as error:
        raise SimulatedBuildError(str(error), "Start a new run") from error
    current().advance(f"{experiment} {process.name}")
    return Outcome("complete", target, None, "", True)
