"""The plan of one experiment in one run: every process with its points in order, hashed and deterministic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewatch.data_contracts.errors import USAGE, TilewatchError
from tilewatch.tasks.plan.choices import Agent
from tilewatch.tasks.plan.experiment import Experiment, Preset
from tilewatch.tasks.plan.ids import short_hash
from tilewatch.tasks.plan.order import abba, control_points, seed_for, shuffled
from tilewatch.tasks.plan.points import Point, Refine, arms_of, axis_values, points

SCHEMA_VERSION = 1
MIN_SAMPLE_NS = 200_000
WARM_UP_MAX_ROUNDS = 30
PROFILED_CALLS = 5
DISCARD_BUDGET = 5
BESIDE_TIMING: Mapping[str, tuple[str, ...]] = {"npu": ("tiling", "counters"), "simulated": ("tiling",)}
"""By agent the kinds of process that follow the timing, one process an arm and a block a kind: logs on, and
AI Core counters on. Both slow the device or the host down, so neither is ever timed.
"""


class PlanError(TilewatchError):
    """A request that leaves nothing to measure; the message says what is there."""

    exit_code = USAGE


@dataclass(frozen=True)
class Request:
    """What a person asks of one experiment: preset, agent and seed, and optionally a part of it.

    ``refine`` adds the axis values on both sides of every predicted boundary.
    """

    preset: str
    agent: Agent
    seed: int
    processes: int | None = None
    axis: str | None = None
    point: str | None = None
    arm: str | None = None
    refine: Refine | None = None


@dataclass(frozen=True)
class Process:
    """One fresh process: ``arm`` in ``role`` (main or control), its block and its points in order.

    ``kind`` is timing; or tiling (logs on) or counters (AI Core metrics on), where nothing is timed.
    """

    arm: str
    role: str
    process_index: int
    block: int
    seed: int
    env: Mapping[str, str]
    points: tuple[Point, ...]
    kind: str = "timing"

    @property
    def name(self) -> str:
        """Folder name of the capture within its experiment."""
        what = self.role if self.kind == "timing" else self.kind
        return f"{self.arm}-{what}-{self.process_index:03d}"


@dataclass(frozen=True)
class Plan:
    """One experiment, planned. ``plan_hash`` covers what is measured, not seed, process count or build."""

    experiment: str
    experiment_name: str
    preset: str
    agent: Agent
    seed: int
    plan_hash: str
    amount: Mapping[str, int]
    points: Mapping[str, tuple[Point, ...]]
    control: Mapping[str, tuple[str, ...]]
    processes: tuple[Process, ...]

    def document(self, process: Process, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The plan file of one process; ``facts`` adds run, lease, build, method and lock."""
        return {
            "schema_version": SCHEMA_VERSION,
            "experiment": self.experiment,
            "experiment_name": self.experiment_name,
            "plan_hash": self.plan_hash,
            "arm": process.arm,
            "role": process.role,
            "kind": process.kind,
            "process_index": process.process_index,
            "block": process.block,
            "seed": process.seed,
            "agent": self.agent,
            "amount": dict(self.amount),
            "env": dict(process.env),
            "points": [dict(p) for p in process.points],
            **facts,
        }


def make_plan(experiment: Experiment, request: Request) -> Plan:
    """Plan one experiment. The same experiment and request give the same plan, hash included.

    Raises PlanError for an unknown preset, or where ``point`` and ``arm`` leave nothing.
    """
    preset = _preset(experiment, request.preset)
    by_arm = _chosen(experiment, preset, request)
    ids = {arm: [p["point_id"] for p in pts] for arm, pts in by_arm.items()}
    control_arms = preset.control_arms if request.point is None else 0
    control = control_points(ids, request.seed, arms=control_arms)
    return Plan(
        experiment=experiment.letter,
        experiment_name=experiment.name,
        preset=request.preset,
        agent=request.agent,
        seed=request.seed,
        plan_hash=_plan_hash(experiment, by_arm),
        amount={
            "samples": preset.samples,
            "min_sample_ns": MIN_SAMPLE_NS,
            "max_point_ns": preset.max_point_ms * 1_000_000,
            "warm_up_max_rounds": WARM_UP_MAX_ROUNDS,
            "profiled_calls": PROFILED_CALLS,
            "discard_budget": DISCARD_BUDGET,
        },
        points={arm: tuple(pts) for arm, pts in by_arm.items()},
        control={arm: tuple(c) for arm, c in control.items()},
        processes=tuple(
            _processes(experiment, request, by_arm, control, request.processes or preset.processes)
        ),
    )


def _preset(experiment: Experiment, name: str) -> Preset:
    for known, preset in experiment.presets.items():
        if known == name:
            return preset
    known_names = ", ".join(experiment.presets)
    raise PlanError(f"experiment {experiment.letter}: no preset {name!r}; known: {known_names}")


def _chosen(experiment: Experiment, preset: Preset, request: Request) -> dict[str, list[Point]]:
    values = axis_values(experiment, preset, request.axis, request.refine)
    by_arm = points(experiment, preset, request.agent, values=values)
    if request.arm is not None:
        if request.arm not in by_arm:
            raise PlanError(
                f"experiment {experiment.letter}: no arm {request.arm!r} for agent {request.agent}; "
                f"known: {', '.join(by_arm)}"
            )
        by_arm = {request.arm: by_arm[request.arm]}
    if request.point is not None:
        by_arm = {arm: [p for p in pts if p["point_id"] == request.point] for arm, pts in by_arm.items()}
        by_arm = {arm: pts for arm, pts in by_arm.items() if pts}
    if not by_arm:
        raise PlanError(
            f"experiment {experiment.letter}: preset {request.preset} has no point {request.point!r}; "
            "`tilewatch runs` and `tilewatch show RUN` list the points of a run"
        )
    return by_arm


def _plan_hash(experiment: Experiment, by_arm: Mapping[str, list[Point]]) -> str:
    env = {arm.name: arm.env for arm in experiment.arms if arm.name in by_arm}
    what = {arm: sorted(pts, key=lambda p: str(p["point_id"])) for arm, pts in by_arm.items()}
    return short_hash({"experiment": experiment.letter, "points": what, "env": env})


def _processes(
    experiment: Experiment,
    request: Request,
    by_arm: Mapping[str, list[Point]],
    control: Mapping[str, list[str]],
    count: int,
) -> list[Process]:
    env = {arm.name: arm.env for arm in arms_of(experiment, request.agent)}
    roles = ("main", "control")
    lanes = [(arm, role) for arm in by_arm for role in roles if role == "main" or arm in control]
    made = []
    for block, (arm, role) in abba(lanes, count):
        seed = seed_for(request.seed, experiment.letter, arm, block)
        pts = [p for p in by_arm[arm] if role == "main" or p["point_id"] in control[arm]]
        order = shuffled(pts, seed_for(seed, "order"))
        made.append(Process(arm, role, block, block, seed, env[arm], tuple(order)))
    kinds = BESIDE_TIMING.get(request.agent, ())
    wanted = [kind for kind in kinds if kind != "counters" or _preset(experiment, request.preset).counters]
    return made + _beside_timing(experiment, request, by_arm, env, count, wanted)


def _beside_timing(
    experiment: Experiment,
    request: Request,
    by_arm: Mapping[str, list[Point]],
    env: Mapping[str, Mapping[str, str]],
    first_block: int,
    kinds: Sequence[str],
) -> list[Process]:
    """One process an arm and kind, each kind in a last block of its own."""
    return [
        Process(
            arm, "main", block, block, seed_for(request.seed, experiment.letter, arm, block), env[arm],
            tuple(pts), kind,
        )
        for block, kind in enumerate(kinds, start=first_block)
        for arm, pts in by_arm.items()
    ]  # fmt: skip
