"""Numbers as people read them: three significant digits; what is stored stays in ns."""

from __future__ import annotations

import math

NOTHING = "–"
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


EXPERIMENTS = {
    "A": "dynamic_quant",
    "B": "quant_matmul",
    "C": "weight_format",
    "D": "grouped_matmul",
    "E": "serving",
}


def experiment_name(experiment: str) -> str:
    """``B quant_matmul`` for ``B``; a name that is no known letter stays as it is."""
    return f"{experiment} {EXPERIMENTS[experiment]}" if experiment in EXPERIMENTS else experiment


def digits(value: float, count: int = 3) -> str:
    """``value`` with ``count`` significant digits and no exponent: 0.0123, 1.20, 123, 12300."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(f"{value:.{count - 1}e}"))))
    return f"{round(value, count - 1 - magnitude):.{max(count - 1 - magnitude, 0)}f}"


def duration(value_ns: float | None) -> str:
    """A duration in the largest unit that keeps it at or above 1, for example ``12.3 µs``."""
    if value_ns is None or math.isnan(value_ns):
        return NOTHING
    rounded = abs(float(f"{value_ns:.2e}"))
    factor, unit = next((u for u in _UNITS if rounded >= u[0]), _UNITS[-1])
    return f"{digits(value_ns / factor)} {unit}"


def round_duration(value_ns: float) -> str:
    """A round duration, for an axis: ``20 µs``, ``1.5 ms``."""
    factor, unit = next((u for u in _UNITS if value_ns >= u[0]), _UNITS[-1])
    return f"{value_ns / factor:g} {unit}"


def ratio(value: float | None) -> str:
    """A ratio of durations as ``×1.23``; two decimals, more where it is closer to 1 than 1 %."""
    if value is None or math.isnan(value):
        return NOTHING
    return f"×{value:.3f}" if abs(value - 1) < 0.01 else f"×{value:.2f}"


def count(number: int, noun: str) -> str:
    """``1 point``, ``1,234 points``."""
    plural = f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def axis_name(axis: str) -> str:
    """The axis as the field writes it: ``m`` is M, ``m_e`` is M_e."""
    return axis[:1].upper() + axis[1:]
