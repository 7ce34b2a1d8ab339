"""The plan of a serving experiment in one run: every launch in order, hashed and deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewatch.tasks.plan.choices import Agent
from tilewatch.tasks.plan.ids import short_hash
from tilewatch.tasks.plan.order import abba, seed_for, shuffled
from tilewatch.tasks.plan.plan import PlanError
from tilewatch.tasks.plan.serving import Arm, Preset, Server, ServingExperiment, placeholders

SERVING_METHOD_VERSION = 1
"""Raised when the semantics of a serving number change, so that old numbers are never compared with new."""


@dataclass(frozen=True)
class Client:
    """The load client: ``builtin``, or ``sglang`` run by the interpreter ``python``, with its version."""

    name: str
    version: str
    python: str


@dataclass(frozen=True)
class ServingRequest:
    """What a person asks of a serving experiment; ``launches`` an arm where the preset's are not wanted."""

    preset: str
    agent: Agent
    seed: int
    launches: int | None = None
    arm: str | None = None


@dataclass(frozen=True)
class Launch:
    """One fresh server under one arm. ``role`` is timing, or profile: nothing is timed.

    ``seed`` decides prompts and arrivals: launches of a block have the same, whatever their arm.
    """

    arm: str
    role: str
    process_index: int
    block: int
    seed: int

    @property
    def name(self) -> str:
        """Folder name of the capture within its experiment."""
        return f"{self.arm}-{self.role}-{self.process_index:03d}"


@dataclass(frozen=True)
class ServingPlan:
    """One serving experiment, planned; mappings hold what JSON can.

    ``plan_hash`` covers server, arms and load, not the seed of the order, the number of launches, the client
    or the build. ``load_id`` names the point that arms are compared at; ``order`` is that of the arms in the
    experiment file, where each is the candidate against every later one.
    """

    experiment: str
    experiment_name: str
    preset: str
    agent: str
    seed: int
    plan_hash: str
    method: Mapping[str, Any]
    method_hash: str
    client: Client
    client_rules: Mapping[str, Any]
    server_kind: str
    server: Mapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]
    order: tuple[str, ...]
    load: Mapping[str, Any]
    load_id: str
    repeats: int
    profile_prompts: int
    launch_limit_s: int
    gates: tuple[Mapping[str, Any], ...]
    launches: tuple[Launch, ...]


def make_serving_plan(experiment: ServingExperiment, request: ServingRequest, client: Client) -> ServingPlan:
    """Plan one serving experiment. The same experiment, request and client give the same plan.

    Raises PlanError for an unknown preset or arm, an agent that its server is not for, and a variable of the
    server that a site has to set.
    """
    preset = _preset(experiment, request)
    server, arms = experiment.servers[preset.server], _arms(experiment, preset, request)
    _refuse_unset(experiment, preset, server, arms)
    described = {
        arm.name: {
            **arm.servers[preset.server].model_dump(),
            "description": arm.description,
            "forced_differences": arm.forced_differences,
        }
        for arm in arms
    }
    load = preset.load.model_dump()
    serving = server.model_dump(exclude={"agents"})
    serving["command"] = [*server.command, *preset.arguments]
    serving["environment"] = {**server.environment, **preset.environment}
    what = {name: {k: arm[k] for k in ("arguments", "environment")} for name, arm in described.items()}
    method = _method(preset, client)
    return ServingPlan(
        experiment=experiment.letter,
        experiment_name=experiment.name,
        preset=request.preset,
        agent=request.agent,
        seed=request.seed,
        plan_hash=short_hash(
            {"experiment": experiment.letter, "server": serving, "arms": what, "load": load}
        ),
        method=method,
        method_hash=short_hash(method),
        client=client,
        client_rules=_client_rules(experiment, server, client),
        server_kind=preset.server,
        server=serving,
        arms=described,
        order=tuple(described),
        load=load,
        load_id=short_hash(load),
        repeats=preset.repeats,
        profile_prompts=preset.profile_prompts,
        launch_limit_s=preset.launch_limit_s,
        gates=tuple(gate.model_dump() for gate in preset.gates),
        launches=_launches(experiment, preset, request, [arm.name for arm in arms]),
    )


def _preset(experiment: ServingExperiment, request: ServingRequest) -> Preset:
    letter = experiment.letter
    preset = experiment.presets.get(request.preset)
    if preset is None:
        known = ", ".join(experiment.presets)
        raise PlanError(f"experiment {letter}: no preset {request.preset!r}; known: {known}")
    agents = experiment.servers[preset.server].agents
    if request.agent not in agents:
        raise PlanError(
            f"experiment {letter}: preset {request.preset} starts server {preset.server}, which agent "
            f"{request.agent} cannot run; it is for: {', '.join(agents)}"
        )
    return preset


def _arms(experiment: ServingExperiment, preset: Preset, request: ServingRequest) -> list[Arm]:
    able = [arm for arm in experiment.arms if preset.server in arm.servers]
    wanted = [a for a in able if preset.arms == "all" or a.name in preset.arms]
    if request.arm is None:
        return wanted
    if chosen := [arm for arm in wanted if arm.name == request.arm]:
        return chosen
    known = ", ".join(arm.name for arm in wanted)
    raise PlanError(f"experiment {experiment.letter}: no arm {request.arm!r}; known: {known}")


def _refuse_unset(e: ServingExperiment, preset: Preset, server: Server, arms: list[Arm]) -> None:
    words = [*server.command, *preset.arguments]
    words += [word for arm in arms for word in arm.servers[preset.server].arguments]
    unset = [name for name in sorted(placeholders(words)) if server.variables.get(name, "") is None]
    if unset:
        raise PlanError(
            f"experiment {e.letter}: servers.{preset.server}.variables.{unset[0]} is not set: copy the "
            "folder of experiment files, set it there, and name the copy in the setting experiments"
        )


def _client_rules(experiment: ServingExperiment, server: Server, client: Client) -> dict[str, Any]:
    """How an installed client is run; empty for the built-in one. Raises PlanError where no file says it."""
    if client.name == "builtin":
        return {}
    for name, rules in experiment.clients.items():
        if name == client.name:
            variables = {key: value or "" for key, value in server.variables.items()}
            tokenizer = server.tokenizer and server.tokenizer.format(**variables)
            return {**rules.model_dump(), "tokenizer": tokenizer}
    raise PlanError(f"experiment {experiment.letter}: clients: nothing says how to run {client.name}")


def _method(preset: Preset, client: Client) -> dict[str, Any]:
    return {
        "method_version": SERVING_METHOD_VERSION,
        "client": client.name,
        "client_version": client.version,
        "timer": "time.perf_counter of the client",
        "server": "a fresh one a launch",
        "warm_up_requests": preset.load.warm_up_requests,
        "repeats": preset.repeats,
    }


def _launches(
    experiment: ServingExperiment, preset: Preset, request: ServingRequest, arms: list[str]
) -> tuple[Launch, ...]:
    """Timing launches in ABBA order over arms in an order by seed, then a profile launch an arm."""
    lanes = shuffled(arms, seed_for(request.seed, experiment.letter, "arms"))
    count = request.launches or preset.launches
    made = [(block, arm, "timing", block) for block, arm in abba(lanes, count)]
    made += [(count, arm, "profile", 0) for arm in lanes]
    return tuple(
        Launch(arm, role, index, block, seed_for(preset.load.seed, experiment.letter, block))
        for block, arm, role, index in made
    )
