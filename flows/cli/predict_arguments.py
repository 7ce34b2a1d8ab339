"""What a person types after `predict`: ranges, lists, formats and shapes."""

from __future__ import annotations

from tilewatch.flows.experiments import SHIPPED
from tilewatch.tasks.plan.experiment import Experiment, ExperimentError, load_experiments
from tilewatch.tasks.predict.calls import ND, NZ
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.shapes import weight_columns

FORMATS = {"nz": NZ, "fractal_nz": NZ, "nd": ND}


def format_of(name: str) -> str:
    """The weight format of ``nz`` or ``nd``. Raises PredictError for another."""
    if name.lower() not in FORMATS:
        raise PredictError("format", f"{name!r}: must be nz or nd")
    return FORMATS[name.lower()]


def columns_of(n: int | None, weight_shape: str, k: int, transposed: bool, experts: int | None = None) -> int:
    """N as given, or of the weight ``4096,1024``.

    Raises PredictError if neither is given, or the weight does not match ``k``, ``experts`` or ``n``.
    """
    if not weight_shape:
        if n is None:
            raise PredictError("n", "give --n, or the weight as --weight-shape")
        return n
    try:
        shape = [int(part) for part in weight_shape.split(",")]
    except ValueError:
        raise PredictError("weight_shape", f"{weight_shape!r}: must be numbers such as 4096,1024") from None
    columns = weight_columns(shape, k, transposed=transposed, experts=experts)
    if n not in (None, columns):
        raise PredictError("n", f"{n}: the weight {shape} has {columns} columns")
    return columns


def span_of(name: str, text: str) -> tuple[int, int]:
    """First and last of ``5`` or ``1:256``. Raises PredictError naming ``name`` for anything else."""
    first, _, last = text.partition(":")
    try:
        span = int(first), int(last or first)
    except ValueError:
        raise PredictError(name, f"{text!r}: must be a number or a range such as 1:256") from None
    if span[0] > span[1]:
        raise PredictError(name, f"{text!r}: the range ends before it begins")
    return span


def values_of(name: str, text: str) -> list[int]:
    """Values of ``1,16,64``, and of ranges in it such as ``1:256``. Raises PredictError as span_of does."""
    spans = [span_of(name, part) for part in text.split(",")]
    return [value for first, last in spans for value in range(first, last + 1)]


def experiments_of(letters: list[str] | None) -> list[Experiment]:
    """The operator experiments that ship here, or those of ``letters``; ExperimentError lists the known."""
    known = load_experiments(SHIPPED)
    wanted = [letter.upper() for letter in letters or known]
    if missing := [letter for letter in wanted if letter not in known]:
        raise ExperimentError(f"no operator experiment {', '.join(missing)}; known: {', '.join(known)}")
    return [known[letter] for letter in wanted]
