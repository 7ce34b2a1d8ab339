"""Which share of the shapes that are asked about is predicted, and why the rest is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import UNSET, ints
from tilewatch.tasks.predict.calls import OperatorCall
from tilewatch.tasks.predict.environment import CannVersion, Platform, cann_version
from tilewatch.tasks.predict.errors import OutOfScope, PredictError
from tilewatch.tasks.predict.predict import predict_axis
from tilewatch.tasks.predict.questions.experiments import Curve

RANGES = ((1, 64), (65, 256), (257, 1024), (1025, 4096))
"""Ranges of M, or of rows an expert: decode, wide decode, and prefill."""


@dataclass(frozen=True)
class Covered:
    """Coverage of one operator, platform, weight format and range of the axis: points asked and predicted.

    ``why`` says what the rest is, blank where nothing is missing.
    """

    operator: str
    platform: str
    weight_format: str
    first: int
    last: int
    points: int
    predicted: int
    why: str

    @property
    def share(self) -> str:
        """Predicted points of those asked, in percent; never rounded to all or to none."""
        percent = 100 * self.predicted / self.points
        return f"{min(max(percent, 0.1), 99.9) if 0 < percent < 100 else percent:.3g} %"


def coverage(
    curves: Iterable[Curve], platforms: Sequence[Platform], cann: CannVersion,
    ranges: Sequence[tuple[int, int]] = RANGES,
) -> list[Covered]:  # fmt: skip
    """Coverage of every value of ``ranges`` on every curve, summed by operator and format."""
    sums: dict[tuple[str, str, str, int, int], tuple[int, int, dict[str, None]]] = {}
    for curve in curves:
        for chip in platforms:
            for first, last in ranges:
                predicted, why = _predicted(curve.call, curve.axis, first, last, chip, cann)
                shown = getattr(curve.call, "weight_format", "none")
                key = curve.call.operation, chip.name, shown, first, last
                total, done, reasons = sums.get(key, (0, 0, {}))
                sums[key] = total + last - first + 1, done + predicted, reasons | dict.fromkeys(why)
    return [Covered(*key, total, done, "; ".join(why)) for key, (total, done, why) in sums.items()]


def _predicted(
    call: OperatorCall, axis: str, first: int, last: int, platform: Platform, cann: CannVersion
) -> tuple[int, list[str]]:
    """Points of the range with a key, and the reasons of those without."""
    try:
        found = predict_axis(call, axis, ints(range(first, last + 1)), platform, cann)
    except OutOfScope as error:
        return 0, [str(error)]
    known = found.columns["tiling_key"] != UNSET
    missing = np.unique(found.outcome[~known])
    reasons = (found.outcomes[int(place)] for place in missing)
    return int(known.sum()), [f"{o.branch}: {o.unknown_reason or o.rule}" for o in reasons]


def coverage_rows(
    curves: Iterable[Curve], platforms: Sequence[Platform], release: str
) -> list[dict[str, str]]:
    """Rows of ``coverage`` as they are printed. A release that is unknown on a platform is one row."""
    rows: list[dict[str, str]] = []
    swept = list(curves)
    for chip in platforms:
        try:
            found = coverage(swept, [chip], cann_version(release, chip.npu_arch))
        except PredictError as error:
            rows.append(_row("all", chip.name, "all", "all", "0 %", str(error)))
            continue
        rows += [
            _row(c.operator, c.platform, c.weight_format, f"{c.first}–{c.last}", c.share, c.why)
            for c in found
        ]
    return rows


def _row(operator: str, soc: str, weight_format: str, m: str, share: str, why: str) -> dict[str, str]:
    return {
        "operator": operator, "soc": soc, "format": weight_format, "m": m, "predicted": share, "why_not": why,
    }  # fmt: skip
