"""Predictions for planned or measured points: a table beside them, to place against observed records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.tasks.predict.arithmetic.integers import ints
from tilewatch.tasks.predict.calls import OperatorCall
from tilewatch.tasks.predict.environment import Platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.predict import op_type, predict_axis
from tilewatch.tasks.predict.questions.experiments import call_of_point
from tilewatch.tasks.predict.questions.releases import Releases
from tilewatch.tasks.predict.records import record

KEYS = ("experiment", "arm", "point_id")
Group = list[tuple[OperatorCall, dict[str, Any]]]


def point_predictions(points: pa.Table, platform: Platform, releases: Releases) -> pa.Table:
    """Predicted tiling of every row of ``points`` (the contract's columns, or a plan's): KEYS and prediction.

    One row a point, whatever runs and launch modes it has. A point whose operation has no predictor, or whose
    call breaks a rule of the operator, has no row: there is nothing to predict. Nor has one whose release is
    unknown; ``targets.unpredicted`` says so.
    """
    groups: dict[OperatorCall, Group] = defaultdict(list)
    for point in {tuple(row[key] for key in KEYS): row for row in points.to_pylist()}.values():
        try:
            call = call_of_point(point)
        except PredictError:
            continue
        groups[replace(call, m=1)].append((call, point))
    rows = [row for group in groups.values() for row in _group_rows(group, platform, releases)]
    own = pa.schema([pa.field(name, pa.string(), nullable=False) for name in KEYS])
    return pa.Table.from_pylist(rows, schema=pa.schema([*own, *schema("predictions")]))


def _group_rows(group: Group, platform: Platform, releases: Releases) -> Iterator[dict[str, Any]]:
    first = group[0][0]
    try:
        used = releases.of(first, platform)
        decisions = predict_axis(first, "m", ints([call.m for call, _ in group]), platform, used.code)
    except PredictError:
        return
    name = op_type(first, platform)
    for index, (call, point) in enumerate(group):
        row = record(name, decisions, index).row(call, platform.name, used.code.name)
        why = {"release_of": used.package, "release_note": used.note}
        yield {key: point[key] for key in KEYS} | row | why
