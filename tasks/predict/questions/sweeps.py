"""The predicted tiling of whole curves as one table: columns of the contract and the tiling data as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tilewatch.tasks.predict.arithmetic.integers import UNSET
from tilewatch.tasks.predict.environment import Platform, cann_version
from tilewatch.tasks.predict.errors import OutOfScope
from tilewatch.tasks.predict.predict import op_type, predict_axis
from tilewatch.tasks.predict.questions.boundaries import axis_values
from tilewatch.tasks.predict.questions.experiments import Curve
from tilewatch.tasks.predict.records import COLUMNS


def sweep_table(
    curves: Iterable[Curve], platforms: Sequence[Platform], releases: Sequence[str], span: tuple[int, int]
) -> pa.Table:
    """One row a curve, platform, release and axis value of ``span``; null where a branch is not restated.

    A curve without rules on a platform has no row there. Raises PredictError for an unknown release.
    """
    parts = [
        part
        for curve in curves
        for chip in platforms
        for name in releases
        if (part := _part(curve, chip, name, span)) is not None
    ]
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


def _part(curve: Curve, chip: Platform, release: str, span: tuple[int, int]) -> pa.Table | None:
    values = axis_values(curve.call, curve.axis, *span)
    code = cann_version(release, chip.npu_arch)
    try:
        found = predict_axis(curve.call, curve.axis, values, chip, code)
    except OutOfScope:
        return None
    same = {
        "evidence": "predicted", "platform": chip.name, "release": code.name, "experiment": curve.experiment,
        "linear": curve.linear, "op_type": op_type(curve.call, chip), "k": curve.call.k,
        "n": getattr(curve.call, "n", None), "weight_format": getattr(curve.call, "weight_format", None),
        "axis": curve.axis,
    }  # fmt: skip
    columns = {name: pa.array([value] * len(values)) for name, value in same.items() if value is not None}
    columns["axis_value"] = pa.array(values)
    for name in COLUMNS:
        array = found.columns.get(name, np.full(len(values), UNSET))
        own = pa.array(array, mask=array == UNSET)
        columns[name] = own.cast(pa.string()) if name == "tiling_key" else own
    outcomes = [found.outcomes[int(place)] for place in found.outcome]
    columns["branch"] = pa.array([outcome.branch for outcome in outcomes])
    columns["unknown_reason"] = pa.array([outcome.unknown_reason for outcome in outcomes], pa.string())
    return pa.table(columns)
