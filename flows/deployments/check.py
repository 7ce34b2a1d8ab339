"""What a fleet asks for, planned before anything is deployed: what would fail at night fails now."""

from __future__ import annotations

from collections.abc import Iterator

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.flows.deployments.fleet import Fleet
from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.prepare import plans
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.flows.sweep import check
from tilewatch.infra.errors import SettingsError
from tilewatch.infra.settings import Settings
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits


def check_fleet(settings: Settings, fleet: Fleet) -> None:
    """Raise SettingsError naming every sweep of the fleet that cannot be planned, or watched by.

    A regression has to measure as many processes as a verdict and a baseline need; experiments, arms, points
    and simulated builds have to be there.
    """
    faults = [
        fault for where, sweep, watched in _asked(fleet) for fault in _faults(settings, where, sweep, watched)
    ]
    if faults:
        raise SettingsError("; ".join(faults), "Correct the fleet file; nothing was deployed")


def _asked(fleet: Fleet) -> Iterator[tuple[str, SweepRequest, bool]]:
    """Every sweep with its place in the file, and whether a regression judges it."""
    for number, one in enumerate(fleet.device_classes):
        place = f"device_classes[{number}]"
        yield f"{place}.sweep", one.swept(), any(plan.sweep is None for plan in one.regressions)
        for index, plan in enumerate(one.regressions):
            if plan.sweep is not None:
                yield f"{place}.regressions[{index}].sweep", one.swept(plan.sweep), True


def _faults(settings: Settings, where: str, sweep: SweepRequest, watched: bool) -> Iterator[str]:
    try:
        check(sweep)
        if watched:
            yield from _too_few(settings, where, sweep)
    except TilewatchError as error:
        yield f"{where}: {error}"


def _too_few(settings: Settings, where: str, sweep: SweepRequest) -> Iterator[str]:
    """The experiments of which fewer processes are measured than a verdict needs."""
    needed = ComparisonLimits().min_processes
    known = experiments(settings)
    operators = sweep.model_copy(update={"experiments": tuple(e for e in sweep.experiments if e in known)})
    for letter, plan in plans(operators, known, seed=1).items():
        timed = [p.arm for p in plan.processes if (p.role, p.kind) == ("main", "timing")]
        if (fewest := min(timed.count(arm) for arm in plan.points)) < needed:
            yield (
                f"{where}: preset {sweep.preset} measures {fewest} processes an arm of {letter}, and a "
                f"baseline and a verdict need {needed}: say processes: {needed}, or another preset"
            )
