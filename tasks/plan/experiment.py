"""The experiment YAML: strict models of what may stand in it, and errors that name file, line and field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Agent = Literal["cpu", "npu", "simulated"]
Format = Literal["ND", "FRACTAL_NZ"]
Dtype = Literal["int8", "bfloat16", "float16"]
Operation = Literal[
    "dynamic_quant", "tuple_input", "quant_linear", "quant_matmul", "matmul", "grouped_matmul"
]
Positive = Annotated[int, Field(ge=1)]


class ExperimentError(ValueError):
    """An experiment file that cannot be planned; the message names file, line and field."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Axis(_Strict):
    """The swept axis: fixed ``values``, a ``range`` refined at predicted boundaries, and named lists."""

    name: Literal["m", "m_e"]
    values: list[Positive] = []
    range: list[Positive] | None = Field(default=None, min_length=2, max_length=2)
    refine: Literal["none", "predicted"] = "none"
    named: dict[str, list[Positive]] = {}

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


class Case(_Strict):
    """Fixed shape of one linear: weight K×N; ``split_n_by`` divides N among tensor-parallel ranks."""

    linear: str
    k: Positive
    n: Positive
    split_n_by: Literal["attn_tp"] | None = None


class Arm(_Strict):
    """One of the things compared: operation, dtypes, weight format, and the agents that can run it."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    description: str
    operation: Operation
    dtype_x: Dtype
    dtype_w: Dtype | None = None
    dtype_out: Dtype
    weight_format: Format | None = None
    tuning_config: Literal["m_e"] | None = None
    agents: list[Agent] = ["cpu", "npu", "simulated"]
    env: dict[str, str] = {}


class Grouped(_Strict):
    """Keys of grouped matmul: experts on the device, how rows are allocated and how they fall on experts."""

    local_experts: Positive
    padded_rows: Positive
    allocation_regimes: list[Literal["padded", "exact"]] = Field(min_length=1)
    group_shapes: list[Literal["uniform", "skewed"]] = Field(min_length=1)
    group_list_type: Literal[0, 1] = 1


class Preset(_Strict):
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


class Experiment(_Strict):
    """One experiment file."""

    schema_version: Literal[1]
    letter: str = Field(pattern=r"^[A-Z]$")
    name: str = Field(pattern=r"^[a-z_]+$")
    question: str
    records: list[str]
    axis: Axis
    attn_tp: Positive = 1
    launch_modes: list[Literal["eager", "npugraph"]] = ["eager"]
    cases: list[Case] = Field(min_length=1)
    arms: list[Arm] = Field(min_length=1)
    grouped: Grouped | None = None
    presets: dict[Literal["smoke", "quick", "full"], Preset]

    @model_validator(mode="after")
    def _possible(self) -> Experiment:
        _check_names(self)
        _check_formats(self)
        _check_presets(self)
        return self


def load_experiment(path: Path) -> Experiment:
    """Read one experiment file. Raises ExperimentError naming file, line, field and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return Experiment.model_validate(yaml.safe_load(text))
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ExperimentError(f"{path}:{mark.line + 1 if mark else 1}: not YAML: {error.problem}") from error
    except ValidationError as error:
        raise ExperimentError("\n".join(_explain(path, root, e) for e in error.errors())) from error


def load_experiments(folder: Path) -> dict[str, Experiment]:
    """All operator experiments of ``folder``, by letter, in order of the letter.

    Raises ExperimentError for a bad file, a folder without files, or a letter that two files have.
    """
    loaded = {path: load_experiment(path) for path in sorted(folder.glob("*.yaml"))}
    if not loaded:
        raise ExperimentError(f"{folder}: holds no experiment files (*.yaml)")
    by_letter: dict[str, Experiment] = {}
    for path, experiment in sorted(loaded.items(), key=lambda item: item[1].letter):
        if experiment.letter in by_letter:
            raise ExperimentError(f"{path}: letter {experiment.letter} belongs to another file already")
        by_letter[experiment.letter] = experiment
    return by_letter


def _explain(path: Path, root: yaml.Node | None, error: Any) -> str:
    message = error["msg"].removeprefix("Value error, ")
    location = list(error["loc"])
    if named := re.match(r"([a-z_]+(?:\.[a-z_]+|\[\d+\])*): ", message):
        steps = re.findall(r"[a-z_]+|\d+", named[1])
        location += [int(step) if step.isdigit() else step for step in steps]
        message = message[named.end() :]
    line, field = _place(root, location)
    if error["type"] == "extra_forbidden":
        message = "unknown key; allowed here: " + ", ".join(_allowed(error["loc"]))
    shown = "" if isinstance(error["input"], dict | list | BaseModel) else f" (found {error['input']!r})"
    return f"{path}:{line}: {field or 'experiment'}: {message}{shown}"


def _place(root: yaml.Node | None, location: Sequence[int | str]) -> tuple[int, str]:
    """Line (from 1) and dotted name of the deepest node that ``location`` reaches."""
    node, line, field = root, 1, ""
    for step in location:
        if isinstance(node, yaml.MappingNode):
            match = [(k, v) for k, v in node.value if k.value == str(step)]
            if not match:
                break
            line, node = match[0][0].start_mark.line + 1, match[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
        field += f"[{step}]" if isinstance(step, int) else f".{step}"
    if location and not field.endswith(str(location[-1])) and isinstance(location[-1], str):
        field += f".{location[-1]}"
    return line, field.lstrip(".")


def _allowed(location: Sequence[int | str]) -> list[str]:
    models: dict[str, type[BaseModel]] = {
        "axis": Axis,
        "cases": Case,
        "arms": Arm,
        "grouped": Grouped,
        "presets": Preset,
    }
    inside = models.get(str(location[0]), Experiment) if len(location) > 1 else Experiment
    return sorted(inside.model_fields)


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
