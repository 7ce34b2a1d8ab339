"""The experiment YAML of an operator: strict models of what may stand in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tilewatch.tasks.plan.choices import Agent, OperatorPreset
from tilewatch.tasks.plan.group_list import LoadFileError, read_loads
from tilewatch.tasks.plan.strict_yaml import ExperimentError, Strict, kind_of, read_strict

__all__ = ["Experiment", "ExperimentError", "load_experiment", "load_experiments"]

Format = Literal["ND", "FRACTAL_NZ"]
Dtype = Literal["int8", "bfloat16", "float16"]
Operation = Literal[
    "dynamic_quant", "tuple_input", "quant_linear", "quant_matmul", "matmul", "grouped_matmul"
]
Positive = Annotated[int, Field(ge=1)]
OPERATOR: Literal["operator"] = "operator"
"""``kind`` of these files, which need not say it."""


class Axis(Strict):
    """The swept axis: fixed ``values``, a ``range`` refined at predicted boundaries, and named lists."""

    name: Literal["m", "m_e"]
    values: list[Positive] = Field(default_factory=list)
    range: list[Positive] | None = Field(default=None, min_length=2, max_length=2)
    refine: Literal["none", "predicted"] = "none"
    named: dict[str, list[Positive]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Axis:
        if self.refine == "predicted" and self.range is None:
            raise ValueError("refine: predicted needs range: [first, last]")
        if not self.values and self.refine != "predicted":
            raise ValueError("axis needs values, or range and refine: predicted")
        if self.range is not None and self.range[0] > self.range[1]:
            raise ValueError(f"range {self.range} ends before it begins")
        return self

    def allowed(self) -> set[int]:
        """Every value that a preset may pick."""
        extra = {v for values in self.named.values() for v in values}
        within = set(range(self.range[0], self.range[1] + 1)) if self.range else set()
        return set(self.values) | extra | within


class Case(Strict):
    """Fixed shape of one linear: weight K×N; ``split_n_by`` divides N among tensor-parallel ranks."""

    linear: str
    k: Positive
    n: Positive
    split_n_by: Literal["attn_tp"] | None = None


class Arm(Strict):
    """One of the things compared: operation, dtypes, weight format, and the agents that can run it."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    description: str
    operation: Operation
    dtype_x: Dtype
    dtype_w: Dtype | None = None
    dtype_out: Dtype
    weight_format: Format | None = None
    tuning_config: Literal["m_e"] | None = None
    agents: list[Agent] = Field(["cpu", "npu", "simulated"])
    env: dict[str, str] = Field(default_factory=dict)


class Grouped(Strict):
    """Keys of grouped matmul: experts on the device, how rows are allocated and how they fall on experts.

    Shape ``measured`` takes the rows that experts had from ``measured_load``, a CSV ``expert,rows`` beside
    the experiment file, or from ``measured_rows`` in it.
    """

    local_experts: Positive
    padded_rows: Positive
    allocation_regimes: list[Literal["padded", "exact"]] = Field(min_length=1)
    group_shapes: list[Literal["uniform", "skewed", "measured"]] = Field(min_length=1)
    measured_load: str | None = None
    measured_rows: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    group_list_type: Literal[0, 1] = 1

    @model_validator(mode="after")
    def _has_loads(self) -> Grouped:
        stated = (self.measured_load is not None) + bool(self.measured_rows)
        if stated != ("measured" in self.group_shapes):
            raise ValueError("group shape measured goes with measured_load or measured_rows alone")
        return self


class Preset(Strict):
    """How much is measured: never what. ``all`` keeps the whole list."""

    axis: list[Positive] | str = "all"
    linears: list[str] | Literal["all"] = "all"
    group_shapes: list[str] | Literal["all"] = "all"
    allocation_regimes: list[str] | Literal["all"] = "all"
    cpu_local_experts: Positive | None = None
    processes: Annotated[int, Field(ge=2, le=100)]
    samples: Annotated[int, Field(ge=3, le=10_000)]
    max_point_ms: Positive
    control_arms: Annotated[int, Field(ge=0)] = 1
    counters: bool = True


class Experiment(Strict):
    """One experiment file."""

    schema_version: Literal[1]
    kind: Literal["operator"] = OPERATOR
    letter: str = Field(pattern=r"^[A-Z]$")
    name: str = Field(pattern=r"^[a-z_]+$")
    question: str
    records: list[str]
    axis: Axis
    attn_tp: Positive = 1
    launch_modes: list[Literal["eager", "npugraph"]] = Field(["eager"])
    graph_buckets: list[Positive] = Field([])
    cases: list[Case] = Field(min_length=1)
    arms: list[Arm] = Field(min_length=1)
    grouped: Grouped | None = None
    presets: dict[OperatorPreset, Preset]

    @model_validator(mode="after")
    def _possible(self) -> Experiment:
        _check_names(self)
        _check_formats(self)
        _check_presets(self)
        _check_graphs(self)
        return self


def load_experiment(path: Path) -> Experiment:
    """Read one experiment file, and the measured loads beside it where it names a file of them.

    Raises ExperimentError naming file, line, field and what is allowed.
    """
    experiment = read_strict(path, Experiment)
    if experiment.grouped is None or experiment.grouped.measured_load is None:
        return experiment
    try:
        loads = read_loads(path.parent / experiment.grouped.measured_load)
    except LoadFileError as error:
        raise ExperimentError(f"{path}: grouped.measured_load: {error}") from error
    grouped = experiment.grouped.model_copy(update={"measured_rows": loads})
    return experiment.model_copy(update={"grouped": grouped})


def load_experiments(folder: Path) -> dict[str, Experiment]:
    """All operator experiments of ``folder``, by letter, in order of the letter; other kinds are left out.

    Raises ExperimentError for a bad file, a folder without files, or a letter that two files have.
    """
    paths = [path for path in sorted(folder.glob("*.yaml")) if kind_of(path) == OPERATOR]
    loaded = {path: load_experiment(path) for path in paths}
    if not loaded:
        raise ExperimentError(f"{folder}: holds no experiment files (*.yaml)")
    by_letter: dict[str, Experiment] = {}
    for path, experiment in sorted(loaded.items(), key=lambda item: item[1].letter):
        if experiment.letter in by_letter:
            raise ExperimentError(f"{path}: letter {experiment.letter} belongs to another file already")
        by_letter[experiment.letter] = experiment
    return by_letter


def _check_names(e: Experiment) -> None:
    for what, names in (("arm", [a.name for a in e.arms]), ("case", [c.linear for c in e.cases])):
        if len(set(names)) != len(names):
            raise ValueError(f"{what}s: names must be unique, found {', '.join(names)}")
    grouped = any(a.operation == "grouped_matmul" for a in e.arms)
    if grouped != (e.grouped is not None):
        raise ValueError("grouped: goes with operation grouped_matmul, and only with it")
    if (e.axis.name == "m_e") != grouped:
        raise ValueError("axis.name: m_e goes with operation grouped_matmul, m with the others")


def _check_formats(e: Experiment) -> None:
    for i, case in enumerate(e.cases):
        n = case.n // e.attn_tp if case.split_n_by else case.n
        if case.split_n_by and case.n % e.attn_tp:
            raise ValueError(f"cases[{i}].n: {case.n} does not divide by attn_tp {e.attn_tp}")
        for arm in e.arms:
            n_align = 32 if arm.dtype_w == "int8" else 16
            if arm.weight_format == "FRACTAL_NZ" and (case.k % 16 or n % n_align):
                raise ValueError(
                    f"cases[{i}]: {arm.dtype_w} FRACTAL_NZ of arm {arm.name} needs K % 16 == 0 and "
                    f"N % {n_align} == 0, but {case.linear} has K={case.k}, N={n}"
                )


def _check_graphs(e: Experiment) -> None:
    """A graph has the rows it was captured with: M is padded to a bucket; grouped rows are allocated ones."""
    padded = "npugraph" in e.launch_modes and e.grouped is None
    if padded != bool(e.graph_buckets):
        raise ValueError("graph_buckets: goes with launch mode npugraph on axis m, and only with it")
    if e.graph_buckets != sorted(set(e.graph_buckets)):
        raise ValueError("graph_buckets: must ascend")
    if padded and max(e.axis.allowed()) > e.graph_buckets[-1]:
        raise ValueError(f"graph_buckets: no bucket holds M {max(e.axis.allowed())}, which the axis allows")


def _check_presets(e: Experiment) -> None:
    for name, preset in e.presets.items():
        if isinstance(preset.axis, str) and preset.axis != "all" and preset.axis not in e.axis.named:
            known = ", ".join(["all", *e.axis.named])
            raise ValueError(f"presets.{name}.axis: {preset.axis!r} is not one of {known}")
        if isinstance(preset.axis, list) and (strange := sorted(set(preset.axis) - e.axis.allowed())):
            raise ValueError(f"presets.{name}.axis: {strange} are not values of axis {e.axis.name}")
        linears = {c.linear for c in e.cases}
        if preset.linears != "all" and (unknown := sorted(set(preset.linears) - linears)):
            raise ValueError(f"presets.{name}.linears: {unknown} are not among {sorted(linears)}")
        if e.grouped is not None:
            _check_rows(e, name, preset)


def _check_rows(e: Experiment, name: str, preset: Preset) -> None:
    assert e.grouped is not None
    for what, chosen, known in (
        ("group_shapes", preset.group_shapes, e.grouped.group_shapes),
        ("allocation_regimes", preset.allocation_regimes, e.grouped.allocation_regimes),
    ):
        if chosen != "all" and (unknown := sorted(set(chosen) - set(known))):
            raise ValueError(f"presets.{name}.{what}: {unknown} are not among {sorted(known)}")
    values = preset.axis if isinstance(preset.axis, list) else e.axis.named.get(preset.axis, e.axis.values)
    values = [*values, *(e.axis.range or [] if e.axis.refine == "predicted" else [])]
    rows = max(values) * e.grouped.local_experts
    if "padded" in e.grouped.allocation_regimes and rows > e.grouped.padded_rows:
        raise ValueError(
            f"presets.{name}.axis: {max(values)} rows on each of {e.grouped.local_experts} experts "
            f"are {rows} rows, more than the {e.grouped.padded_rows} allocated by grouped.padded_rows"
        )
