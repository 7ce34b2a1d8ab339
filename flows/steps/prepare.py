"""Before anything is measured: what device and build this is, and the plan of every experiment."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.flows.steps.launch import client_of
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra import spool
from tilewatch.infra.archive import Archive
from tilewatch.infra.host_limits import allowed_environments
from tilewatch.infra.progress import current
from tilewatch.infra.settings import Settings
from tilewatch.infra.simulated_device import AGENT as SIMULATED
from tilewatch.infra.simulated_device import chosen_build, simulated_document
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.builds.packages import label_part, mixes
from tilewatch.tasks.measure.environment import BuildEnvironment, BuildEnvironmentError
from tilewatch.tasks.measure.method import default_method, method_hash
from tilewatch.tasks.measure.run import Description, describe
from tilewatch.tasks.plan.choices import Agent
from tilewatch.tasks.plan.experiment import Experiment
from tilewatch.tasks.plan.plan import Plan, PlanError, Request, make_plan
from tilewatch.tasks.plan.points import Refine
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.plan.serving import ServingExperiment
from tilewatch.tasks.plan.serving_plan import Client, ServingPlan, ServingRequest, make_serving_plan
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.questions.experiments import refinement

NO_SERVING: Mapping[str, ServingExperiment] = {}


class BuildLabelError(TilewatchError):
    """A label that already names another build."""


def prepare(
    settings: Settings, archive: Archive, request: SweepRequest, known: Mapping[str, Experiment],
    serving: Mapping[str, ServingExperiment] = NO_SERVING,
) -> RunFolder:  # fmt: skip
    """Plan a new run of one build and make its folder in the spool.

    Raises PlanError for an unknown experiment, BuildLabelError where the label names another build in the
    archive, MeasureError where the measuring interpreter cannot measure, BuildEnvironmentError for several
    environments: those are planned by ``prepare_together``.
    """
    if len(request.environments) > 1:
        names = ", ".join(environment.label for environment in request.environments)
        raise BuildEnvironmentError(f"environments {names}: several builds are measured by flow side_by_side")
    return prepare_together(settings, archive, request, known, serving)[0]


def prepare_together(
    settings: Settings, archive: Archive, request: SweepRequest, known: Mapping[str, Experiment],
    serving: Mapping[str, ServingExperiment] = NO_SERVING,
) -> list[RunFolder]:  # fmt: skip
    """Plan one run a build, all with the same points, seed and order, and make their folders in the spool.

    Raises what ``prepare`` raises, BuildEnvironmentError where the builds run on different devices, and
    NotAllowedHereError where a server asks for a build that this host does not list.
    """
    settings.prepare()
    builds = allowed_environments(settings, request.environments)
    request = request.model_copy(update={"environments": builds})
    seed = request.seed or time.time_ns() % 1_000_000_007
    planned = plans(request, known, seed, serving)
    launched = serving_plans(request, serving, seed, partial(client_of, settings))
    if request.agent == SIMULATED:
        return [_prepare_simulated(settings, archive, request, planned, seed)]
    asked = [known[letter] for letter in planned]
    method = default_method(request.agent, graphs=_replays(asked, request.agent), tenants=settings.tenants)
    documents = [
        _document(settings, request, planned, seed, method, one) for one in request.environments or (None,)
    ]
    for document in documents:
        _refuse_taken_label(archive, document.build, document.build_id)
    _refuse_unlike(documents)
    if len(documents) > 1:
        beside = tuple(document.run_id for document in documents)
        documents = [replace(document, beside=beside) for document in documents]
    documents = [replace(document, serving=launched) for document in documents]
    return [spool.create(settings, document) for document in documents]


def _document(
    settings: Settings,
    request: SweepRequest,
    planned: Mapping[str, Plan],
    seed: int,
    method: Mapping[str, Any],
    environment: BuildEnvironment | None,
) -> RunDocument:
    """The document of a new run in ``environment``. Raises MeasureError."""
    python = (environment and environment.python) or str(settings.measure_python)
    description = describe(python, request.agent, environment.variables() if environment else None)
    label = environment.label if environment else request.build or _label(request.agent, description)
    for sentence in mixes(description.components):
        current().note(sentence)
    return RunDocument(
        run_id=spool.new_run_id(),
        started_ns=time.time_ns(),
        command=request.command or _command(request),
        agent=request.agent,
        evidence=description.facts["evidence"],
        preset=request.preset,
        seed=seed,
        build=label,
        build_id=description.build_id,
        components=dict(description.components),
        host=description.host,
        device=description.device,
        device_class=description.device_class,
        method=method,
        method_hash=method_hash(method),
        plans=planned,
        selection=_selection(request, environment),
        environment=environment.facts() if environment else {},
    )


def _replays(experiments: Iterable[Experiment], agent: Agent) -> bool:
    """Whether they have points launched by replaying a graph, asked for now or not: one method either way."""
    return agent == "npu" and any("npugraph" in experiment.launch_modes for experiment in experiments)


def _refuse_unlike(documents: Sequence[RunDocument]) -> None:
    """Raises BuildEnvironmentError where the builds see different devices; notes builds that are the same."""
    first = documents[0]
    for other in documents[1:]:
        if other.device_class != first.device_class:
            raise BuildEnvironmentError(
                f"environments {first.build} and {other.build} see different devices, "
                f"{first.device_class} and {other.device_class}"
            )
        if other.build_id == first.build_id:
            current().note(f"{first.build} and {other.build} are the same build {first.build_id}")


def _prepare_simulated(
    settings: Settings, archive: Archive, request: SweepRequest, planned: Mapping[str, Plan], seed: int
) -> RunFolder:
    build = chosen_build(request.build, request.soc)
    _refuse_taken_label(archive, build.label, build.build_id)
    document = simulated_document(
        build,
        planned,
        preset=request.preset,
        seed=seed,
        command=request.command or _command(request),
        selection=_selection(request),
    )
    return spool.create(settings, document)


def plans(
    request: SweepRequest,
    known: Mapping[str, Experiment],
    seed: int,
    serving: Collection[str] = (),
) -> dict[str, Plan]:
    """The plan of every operator experiment asked for, by letter; ``serving`` are letters of other ones.

    Raises PlanError or ExperimentError.
    """
    if request.agent == SIMULATED:
        chosen_build(request.build, request.soc)
    _check_environments(request)
    if unknown := [letter for letter in request.experiments if letter not in (*known, *serving)]:
        there = ", ".join(sorted({*known, *serving}))
        raise PlanError(f"no experiment {', '.join(unknown)}; known: {there}")
    wanted = Request(
        preset=request.preset,
        agent=request.agent,
        seed=seed,
        processes=request.processes,
        axis=request.axis,
        point=request.point,
        arm=request.arm,
        refine=_refine(request),
    )
    letters = sorted(set(request.experiments) & set(known))
    return {letter: make_plan(known[letter], wanted) for letter in letters}


def serving_plans(
    request: SweepRequest,
    serving: Mapping[str, ServingExperiment],
    seed: int,
    client: Callable[[], Client],
) -> dict[str, ServingPlan]:
    """The plan of every serving experiment asked for; ``client`` is asked for only where there is one.

    Raises PlanError, also for options that serving has no meaning for.
    """
    letters = sorted(set(request.experiments) & set(serving))
    if not letters:
        return {}
    for name in ("axis", "point", "refine"):
        if getattr(request, name):
            raise PlanError(f"experiment {letters[0]}: --{name} is for operators; serving has no axis")
    if len(request.environments) > 1:
        raise PlanError(f"experiment {letters[0]}: one build a run; measure the others in runs of their own")
    wanted = ServingRequest(request.preset, request.agent, seed, request.processes, request.arm)
    return {letter: make_serving_plan(serving[letter], wanted, client()) for letter in letters}


def _check_environments(request: SweepRequest) -> None:
    """Raises BuildEnvironmentError for what contradicts itself."""
    labels = [environment.label for environment in request.environments]
    if labels and request.agent == SIMULATED:
        raise BuildEnvironmentError("agent simulated executes nothing: it has no environments")
    if labels and request.build is not None:
        raise BuildEnvironmentError(f"an environment's label is that of its build: leave out {request.build}")
    if len(set(labels)) < len(labels):
        raise BuildEnvironmentError(f"environments {', '.join(labels)}: one label stands for one build")


def _refine(request: SweepRequest) -> Refine | None:
    """Both sides of every boundary predicted for the named CANN versions on the named SoC."""
    if not request.refine:
        return None
    try:
        chip = platform(request.soc)
        return refinement(chip, [cann_version(name, chip.npu_arch) for name in request.refine])
    except PredictError as error:
        raise PlanError(f"refine: {error}") from error


def _selection(request: SweepRequest, environment: BuildEnvironment | None = None) -> str:
    """The options that a point needs to be found again, as a shell takes them."""
    words = ["--axis", request.axis] if request.axis else []
    for version in request.refine:
        words += ["--refine", version]
    words += ["--soc", request.soc] if request.refine or request.agent == SIMULATED else []
    words += ["--environment", environment.option()] if environment else []
    return f"{shlex.join(words)} " if words else ""


def _refuse_taken_label(archive: Archive, label: str, identity: str) -> None:
    found = archive.tables.scan("runs", [("build", "==", label)], ["build_id"])
    if others := sorted({b for b in found["build_id"].to_pylist() if b != identity}):
        raise BuildLabelError(
            f"label {label} names build {others[0]} in this archive, and this is build {identity}",
            "Give --build another label; a label stands for one build",
        )


def _label(agent: str, description: Description) -> str:
    """The label of a build that was not named: agent, the version that matters most, a piece of its hash."""
    if agent == "npu":
        version = f"cann{label_part(description.components) or 'unknown'}"
    else:
        version = f"torch{description.components.get('torch', 'unknown').split('+')[0]}"
    return f"{agent}-{version}-{description.build_id[:6]}"


def _command(request: SweepRequest) -> str:
    words = ["tilewatch", "run", *request.experiments, "--preset", request.preset, "--agent", request.agent]
    for name in ("build", "processes", "axis", "point", "arm"):
        if (value := getattr(request, name)) is not None:
            words += [f"--{name}", str(value)]
    for environment in request.environments:
        words += ["--environment", environment.option()]
    return shlex.join(words)
