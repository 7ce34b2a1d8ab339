"""CANN upgrade: what should change, what did change, and the three worst points with their causes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from tilewatch.flows.alerts import alert, build_cause, refuse_uncompared
from tilewatch.flows.confirmation import Measured, compare_confirmed, measure
from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.baselines import ARMED, baseline_runs
from tilewatch.flows.steps.judge import Comparison
from tilewatch.flows.steps.report import SweepReport
from tilewatch.flows.steps.requests import CompareRequest, SweepRequest, UpgradeRequest
from tilewatch.flows.steps.run_names import NothingToCompareError
from tilewatch.infra.archive import open_archive
from tilewatch.infra.builds import BuildChangedError, PresentBuild, newest_label, present_build
from tilewatch.infra.settings import load_settings
from tilewatch.tasks.predict.environment import CannVersion, cann_version, platform
from tilewatch.tasks.predict.errors import OutOfScope, PredictError
from tilewatch.tasks.predict.questions.experiments import axis_list, curves
from tilewatch.tasks.predict.questions.upgrades import Change, upgrade_changes

SHOWN_CHANGES = 200


@dataclass(frozen=True)
class Upgrade:
    """What was predicted, what was measured, how it compares, and what is told of it."""

    predicted: tuple[Change, ...]
    sweep: SweepReport
    comparison: Comparison
    text: str


@flow(name="cann_upgrade", flow_run_name="cann_upgrade {request.old_cann} {request.new_cann}")
def cann_upgrade(request: UpgradeRequest) -> Upgrade:
    """Predict what the new build changes, sweep it, judge it against the approved or the former build, tell.

    Old and new build are arms of one sweep where both stand side by side; otherwise the drift of the anchor
    kernels between the leases bounds the floor. Aborts where the build is not the one that the run is
    about: before the sweep, during it, or after it. Fails as "not comparable" after it has told where an
    armed point was refused or is missing.
    """
    versions_or_reason(request)
    found = present(request.sweep, request.new_build_id)
    baseline = resolved_baseline(request, found)
    predicted = predicted_changes(request)
    done = measure(request.sweep)
    present(request.sweep, found.build_id)
    against = CompareRequest(
        baseline=in_one_lease(baseline, found, done, request.sweep.agent),
        candidate=done.candidate.run_id,
    )
    compared = compare_confirmed(against, request.sweep, done.candidate)
    command = f"tilewatch compare {compared.rows['baseline'][0]} {done.candidate.run_id}"
    text = alert("cann-upgrade", compared, command, predicted_cause(predicted))
    refuse_uncompared(compared, command, text)
    return Upgrade(tuple(predicted), done.candidate, compared, text)


def versions(request: UpgradeRequest) -> tuple[CannVersion, CannVersion] | None:
    """CANN before and after; None where one is not named. Raises PredictError for one without rules."""
    if not (request.old_cann and request.new_cann):
        return None
    arch = platform(request.sweep.soc).npu_arch
    return cann_version(request.old_cann, arch), cann_version(request.new_cann, arch)


def versions_or_reason(request: UpgradeRequest) -> tuple[tuple[CannVersion, CannVersion] | None, str]:
    """What ``versions`` gives, and why it gives nothing where the release of a build found here has no rules.

    A build that an agent found is swept all the same. A release that somebody typed must be known: raises
    PredictError then.
    """
    try:
        return versions(request), ""
    except PredictError as error:
        if not request.new_build_id:
            raise
        return None, f"not predicted: {error}"


@task(name="present build", cache_policy=NO_CACHE)
def present(sweep: SweepRequest, expected: str) -> PresentBuild:
    """The present build. Raises BuildChangedError where another one than ``expected`` is meant."""
    found = present_build(load_settings(), sweep.agent, label=sweep.build, soc=sweep.soc)
    if expected and found.build_id != expected:
        raise BuildChangedError(
            f"the build is {found.build_id} and this run is about {expected}: it changed meanwhile",
            "Run again when the installation is finished; nothing was judged",
        )
    return found


@task(name="baseline", cache_policy=NO_CACHE)
def resolved_baseline(request: UpgradeRequest, build: PresentBuild) -> str:
    """Name to compare with: the one asked for, or the former build where no baseline is armed.

    Raises NothingToCompareError before anything is measured where there is neither.
    """
    settings = load_settings()
    with open_archive(settings) as archive:
        try:
            baseline_runs(archive, request.baseline, build.device_class, request.sweep.agent)
        except NothingToCompareError:
            former = newest_label(archive, request.old_build_id)
            if request.baseline != ARMED or former is None or request.old_build_id == build.build_id:
                raise
            return former
    return request.baseline


@task(name="baseline in one lease", cache_policy=NO_CACHE)
def in_one_lease(baseline: str, found: PresentBuild, done: Measured, agent: str) -> str:
    """The baseline build as it was measured in the same sweep, where it was; else ``baseline`` itself.

    Side by side only the build that stands for ``baseline`` may take its place: another one was not approved.
    """
    if done.before is None:
        return baseline
    with open_archive(load_settings()) as archive:
        _, runs = baseline_runs(archive, baseline, found.device_class, agent)
        builds = archive.tables.scan("runs", [("run_id", "in", [*runs, done.before.run_id])], ["build_id"])
    return done.before.run_id if len(set(builds["build_id"].to_pylist())) == 1 else baseline


@task(name="predict", cache_policy=NO_CACHE)
def predicted_changes(request: UpgradeRequest) -> list[Change]:
    """Tiling fields that the upgrade changes at the swept points, worst first; also left as an artifact.

    Empty without both CANN versions: what runs is then no CANN, or is not known. The artifact says which
    operators have no rules on this SoC, and why a release is not predicted. Raises PredictError as
    ``versions_or_reason`` does.
    """
    both, reason = versions_or_reason(request)
    if reason:
        create_table_artifact([], key="cann-upgrade-predictions", description=reason)
    if both is None:
        return []
    known = experiments(load_settings())
    specs = [known[letter] for letter in request.sweep.experiments]
    swept = ((curve, axis_list(spec)) for spec in specs for curve in curves(spec))
    try:
        worst, left_out = upgrade_changes(swept, platform(request.sweep.soc), *both)
    except OutOfScope as error:
        worst, left_out = [], [str(error)]
    said = [f"predicted for CANN {request.old_cann} → {request.new_cann}: {len(worst)} changes", *left_out]
    create_table_artifact(
        [asdict(change) for change in worst[:SHOWN_CHANGES]],
        key="cann-upgrade-predictions",
        description="; left out: ".join(said),
    )
    return worst


def predicted_cause(predicted: list[Change]) -> Callable[[dict[str, Any]], str]:
    """A function that names the cause that the comparison knows, and what was predicted at that point."""
    by_shape: dict[tuple[int, int, int | None], list[Change]] = {}
    for change in predicted:
        by_shape.setdefault((change.m, change.k, change.n), []).append(change)

    def cause(row: dict[str, Any]) -> str:
        n = None if row["operator"] == "dynamic_quant" else row["n"]
        at_point = by_shape.get((row["m_executed"], row["k"], n), [])
        if not at_point:
            return build_cause(row)
        worst = at_point[0]
        return f"{build_cause(row)}; predicted: {worst.operator} {worst.field} {worst.before} → {worst.after}"

    return cause
