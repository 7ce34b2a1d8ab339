"""The experiment YAML of serving: servers, arms, loads and gates as data, in strict models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tilewatch.tasks.plan.strict_yaml import ExperimentError, Strict, kind_of, read_strict

SERVING: Literal["serving"] = "serving"
"""``kind`` of these files."""
PLACEHOLDERS = ("measure_python", "reference_server", "port", "arm", "agent")
"""What a command may name beside the variables of its server."""

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Path_ = Annotated[str, Field(pattern=r"^/")]
Words = list[str]
Variables = dict[str, str]
Scalar = str | int | float | bool | None
WeightFormat = Literal["FRACTAL_NZ", "ND"]


class Ready(Strict):
    """When a server is ready: ``path`` answers ``status`` before the deadline, counted from its start."""

    path: Path_
    status: Annotated[int, Field(ge=100, le=599)] = 200
    deadline_s: Positive


class ProfileOf(Strict):
    """How a server is asked for a profile by stage: paths to post to, steps a stage, files it leaves."""

    start_path: Path_
    stop_path: Path_
    steps: Positive
    files: str
    deadline_s: Positive


class Server(Strict):
    """One kind of server. ``variables`` stand in the command as ``{name}``; null must be set by a site."""

    command: Words = Field(min_length=1)
    variables: dict[str, str | None] = Field(default_factory=dict)
    environment: Variables = Field(default_factory=dict)
    agents: list[Literal["cpu", "npu"]] = Field(min_length=1)
    ready: Ready
    info_path: Path_
    vocabulary: Positive
    profile: ProfileOf
    stop_grace_s: Positive = 5
    tokenizer: str | None = None
    """Folder of the tokenizer for SGLang's client; without it one is made whose word ``t17`` is token 17."""


class ClientOf(Strict):
    """A load client that is installed on a host: its command, with values of the load, and environment."""

    command: Words = Field(min_length=1)
    environment: Variables = Field(default_factory=dict)


class Expected(Strict):
    """What proves an arm before any load: the server's own words, its environment, its weights, its log.

    ``info`` maps dotted names of the server's information to values; ``environment`` is that of the process
    itself, null for a variable that must not be set; ``log`` are regular expressions, each found in a line,
    ``log_absent`` found in none.
    """

    info: dict[str, Scalar] = Field(default_factory=dict)
    environment: dict[str, str | None] = Field(default_factory=dict)
    weight_format: WeightFormat | None = None
    log: Words = Field(default_factory=list)
    log_absent: Words = Field(default_factory=list)

    @model_validator(mode="after")
    def _proves_something(self) -> Expected:
        if not any((self.info, self.environment, self.weight_format, self.log, self.log_absent)):
            raise ValueError("expects nothing: an arm that nothing proves may not be measured")
        for name in ("log", "log_absent"):
            for pattern in getattr(self, name):
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise ValueError(f"{name}: {pattern!r} is no regular expression: {error}") from error
        return self


class ArmOn(Strict):
    """An arm on one kind of server: what is added to its command and environment, and what proves it."""

    arguments: Words = Field(default_factory=list)
    environment: Variables = Field(default_factory=dict)
    expect: Expected


class Arm(Strict):
    """One of the things compared. ``forced_differences``: what it changes beside what it is named for."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    description: str
    forced_differences: Words = Field(default_factory=list)
    servers: dict[str, ArmOn] = Field(min_length=1)


class Load(Strict):
    """What the client sends. Without a rate all requests are sent at once, as the bound lets them."""

    input_tokens: Positive
    output_tokens: Positive
    prompts: Positive
    max_concurrency: Positive | None = None
    request_rate: Annotated[float, Field(gt=0)] | None = None
    seed: NotNegative
    warm_up_requests: NotNegative = 1
    request_timeout_s: Positive
    """Longest silence within a request before it counts as stalled."""


class Gate(Strict):
    """An absolute bar. Without ``limit`` it is not armed; ``tolerance`` is a share of the limit."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    metric: Literal["ttft_ns", "tpot_ns", "itl_ns", "e2e_ns", "output_token_per_s", "request_per_s"]
    statistic: Literal["mean", "median", "p90", "p95", "p99", "total"]
    direction: Literal["at_most", "at_least"]
    limit: Annotated[float, Field(gt=0)] | None = None
    tolerance: Annotated[float, Field(ge=0, lt=1)]
    needed_launches: Positive
    allowed_failures: NotNegative = 0
    source: str = "requirement"


class Preset(Strict):
    """How much is measured, on which server, under which load, against which gates."""

    server: str
    arms: list[str] | Literal["all"] = "all"
    arguments: Words = Field(default_factory=list)
    environment: Variables = Field(default_factory=dict)
    launches: Annotated[int, Field(ge=1, le=100)]
    repeats: Positive
    launch_limit_s: Positive
    load: Load
    profile_prompts: Positive
    gates: list[Gate] = Field(default_factory=list)


class ServingExperiment(Strict):
    """One experiment file of kind ``serving``."""

    schema_version: Literal[1]
    kind: Literal["serving"]
    letter: str = Field(pattern=r"^[A-Z]$")
    name: str = Field(pattern=r"^[a-z_]+$")
    question: str
    servers: dict[str, Server] = Field(min_length=1)
    clients: dict[Literal["sglang"], ClientOf] = Field(default_factory=dict)
    arms: list[Arm] = Field(min_length=1)
    presets: dict[str, Preset] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> ServingExperiment:
        for fault in (*_faults_of_names(self), *_faults_of_presets(self), *_faults_of_commands(self)):
            raise ValueError(fault)
        return self


def load_serving(path: Path) -> ServingExperiment:
    """Read one serving file. Raises ExperimentError naming file, line, field and what is allowed."""
    return read_strict(path, ServingExperiment)


def load_serving_experiments(folder: Path) -> dict[str, ServingExperiment]:
    """The serving experiments of ``folder`` by letter. Raises ExperimentError for a bad file."""
    found: dict[str, ServingExperiment] = {}
    for path in sorted(folder.glob("*.yaml")):
        if kind_of(path) != SERVING:
            continue
        experiment = load_serving(path)
        if experiment.letter in found:
            raise ExperimentError(f"{path}: letter {experiment.letter} belongs to another file already")
        found[experiment.letter] = experiment
    return found


def placeholders(words: Iterable[str]) -> set[str]:
    """Names in braces in the words of a command."""
    return {name for word in words for name in re.findall(r"\{(\w+)\}", word)}


def _faults_of_names(e: ServingExperiment) -> Iterator[str]:
    names = [arm.name for arm in e.arms]
    if len(set(names)) != len(names):
        yield f"arms: names must be unique, found {', '.join(names)}"
    for i, arm in enumerate(e.arms):
        if unknown := sorted(set(arm.servers) - set(e.servers)):
            yield f"arms[{i}].servers: {', '.join(unknown)} is no server; known: {', '.join(e.servers)}"


def _faults_of_presets(e: ServingExperiment) -> Iterator[str]:
    for name, preset in e.presets.items():
        if preset.server not in e.servers:
            known = ", ".join(e.servers)
            yield f"presets.{name}.server: {preset.server!r} is no server; known: {known}"
            continue
        able = [arm.name for arm in e.arms if preset.server in arm.servers]
        wanted = able if preset.arms == "all" else preset.arms
        if unknown := sorted(set(wanted) - set(able)):
            yield f"presets.{name}.arms: {unknown} are not among {able} of server {preset.server}"
        if not wanted:
            yield f"presets.{name}.arms: no arm runs on server {preset.server}"
        gates = [gate.name for gate in preset.gates]
        if len(set(gates)) != len(gates):
            yield f"presets.{name}.gates: names must be unique, found {', '.join(gates)}"


def _faults_of_commands(e: ServingExperiment) -> Iterator[str]:
    for kind, server in e.servers.items():
        known = {*PLACEHOLDERS, *server.variables}
        words: Any = [(f"servers.{kind}.command", server.command)]
        words += [
            (f"arms[{i}].servers.{kind}.arguments", a.servers[kind].arguments)
            for i, a in enumerate(e.arms)
            if kind in a.servers
        ]
        words += [(f"presets.{n}.arguments", p.arguments) for n, p in e.presets.items() if p.server == kind]
        for field, command in words:
            if unknown := sorted(placeholders(command) - known):
                yield f"{field}: {{{unknown[0]}}} is not known; known: {', '.join(sorted(known))}"
        if "port" not in placeholders(server.command):
            yield f"servers.{kind}.command: names no {{port}}, so nobody could find the server"
