"""kernel_details.csv of a process that measured on a device → ``kernels`` with their points, by call order.

The profiled window holds the calls of the points in the order of the plan and nothing else; up to
``lead_in_calls`` calls of the first point may stand before them, because a profiler can lose the head of its
window. Kernels are attributed from the end, and only where count, operator types and shapes are exactly those
of the calls, and profiler steps, where the process made one a point, are as many and change where the point
does: a shifted kernel would time the wrong point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import schema
from tilewatch.tasks.plan.kernel_types import DYNAMIC_QUANT, GROUPED_MATMUL, MATMUL, QUANT_MATMUL
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.kernel_details import read
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult

FOLDER = "profiler"
DETAILS = "kernel_details.csv"
NZ = "FRACTAL_NZ"
OF_OPERATOR = {
    "npu::npu_dynamic_quant": DYNAMIC_QUANT,
    "npu::npu_quant_matmul": QUANT_MATMUL,
    "npu::npu_grouped_matmul": GROUPED_MATMUL,
    "aten::mm": MATMUL,
}
"""Operator types that a call of an operator may leave."""

_KNOWN = pa.array(sorted({name for types in OF_OPERATOR.values() for name in types}), pa.string())


@dataclass(frozen=True)
class Proof:
    """What the kernels of one point prove: the aclnn function that ran, and whether they read NZ weights."""

    operator: str | None
    formats: tuple[str, ...]


@dataclass(frozen=True)
class _Launch:
    """One kernel that must be there; ``shape_x`` is its first input where it is the point's own."""

    point_id: str
    types: tuple[str, ...]
    shape_x: list[int] | None

    @property
    def op_type(self) -> str:
        """The usual operator type on a device; the host's names have a namespace."""
        return next(name for name in self.types if "::" not in name)


def read_device_kernels(
    folder: Path,
    origin: Origin,
    records: Mapping[str, Mapping[str, Any]],
    lead_in_calls: int,
    step_a_point: bool = False,
) -> tuple[ReadResult, dict[str, Proof]]:
    """``kernels`` rows below ``folder``/profiler and what they prove by point.

    ``records`` are those of points.jsonl. Where the launches are not those of the calls every row is kept
    without a point, and quarantine says what was expected.
    """
    files = sorted((folder / FOLDER).rglob(DETAILS))
    launches = list(_launches(records.values()))
    if not files:
        lost = [Refusal(FOLDER, None, "no_kernels", f"no {DETAILS} was left")] if launches else []
        empty = schema("kernels").empty_table()
        return ReadResult(empty, refused_rows(origin, "kernels", lost)), {}
    results = [read(path, origin, path.relative_to(folder).as_posix()) for path in files]
    table = pa.concat_tables([result.table for result in results])
    quarantine = pa.concat_tables([result.quarantine for result in results])
    order = pc.sort_indices(table["start_ns"]).to_numpy()
    known = order[pc.is_in(table["op_type"], value_set=_KNOWN).to_numpy()[order]]
    first = next(iter(records.values()), {})
    lead_in = lead_in_calls * sum(first.get("kernels_per_call", {}).values())
    rows = table.select(["op_type", "input_shapes", "step_id"]).take(known).to_pylist()
    fault = _fault(launches, rows, lead_in)
    if fault is None and step_a_point:
        fault = _step_fault(launches, rows[len(rows) - len(launches) :])
    if fault is not None:
        refused = refused_rows(origin, "kernels", [Refusal(files[0].name, None, "kernel_count", fault)])
        return ReadResult(table, pa.concat_tables([quarantine, refused])), {}
    named = _named(table, order, known[len(known) - len(launches) :], launches)
    return ReadResult(named, quarantine), _proofs(named, records)


def _launches(records: Iterable[Mapping[str, Any]]) -> Iterable[_Launch]:
    for record in sorted(records, key=lambda record: int(record.get("order", 0))):
        for _ in range(record.get("profiled_calls") or 0):
            for operator, count in (record.get("kernels_per_call") or {}).items():
                shape_x = record["shape_x"]
                yield from [_Launch(record["point_id"], OF_OPERATOR[operator], shape_x)] * count


def _fault(expected: list[_Launch], found: list[dict[str, Any]], lead_in: int) -> str | None:
    """Why the kernels found are not those expected, or None."""
    surplus = len(found) - len(expected)
    if not 0 <= surplus <= lead_in:
        wanted = _counted(launch.op_type for launch in expected)
        return (
            f"expected {wanted} kernels and at most {lead_in} before them, found "
            f"{_counted(row['op_type'] for row in found)}; nothing is attributed"
        )
    for number, (launch, row) in enumerate(zip(expected, found[surplus:], strict=True), start=1):
        if row["op_type"] not in launch.types:
            return f"kernel {number} is {row['op_type']}, expected {launch.op_type}; nothing is attributed"
        shape = row["input_shapes"][0] if row["input_shapes"] else None
        if shape is not None and launch.shape_x is not None and shape != launch.shape_x:
            return f"kernel {number} read {shape}, expected {launch.shape_x}; nothing is attributed"
    return None


def _step_fault(expected: list[_Launch], found: list[dict[str, Any]]) -> str | None:
    """Why the steps of the kernels are not one a point, or None; a missing step contradicts nothing."""
    pairs = zip(expected, found, strict=True)
    seen = {(launch.point_id, row["step_id"]) for launch, row in pairs if row["step_id"] is not None}
    points, steps = {point for point, _ in seen}, {step for _, step in seen}
    if len(points) == len(steps) == len(seen):
        return None
    return (
        f"{len(points)} points lie in {len(steps)} profiler steps, expected one each; nothing is attributed"
    )


def _named(table: pa.Table, order: Any, own: Any, launches: list[_Launch]) -> pa.Table:
    """Kernels with their point; others between two launches belong to the launch that follows."""
    ids = np.full(table.num_rows, None, dtype=object)
    if launches:
        place = np.empty(table.num_rows, dtype=np.int64)
        place[order] = np.arange(table.num_rows)
        points = np.array([launch.point_id for launch in launches], dtype=object)
        within = (place >= place[own[0]]) & (place <= place[own[-1]])
        ids[within] = points[np.searchsorted(place[own], place[within])]
    index = table.schema.get_field_index("point_id")
    return table.set_column(index, table.schema.field(index), pa.array(ids.tolist(), pa.string()))


def _proofs(kernels: pa.Table, records: Mapping[str, Mapping[str, Any]]) -> dict[str, Proof]:
    """By point: the aclnn function of its main kernels, and ND or NZ as they read their inputs."""
    columns = (kernels[name].to_pylist() for name in ("point_id", "op_type", "name", "input_formats"))
    found: dict[str, set[tuple[str, str]]] = {}
    for point, op_type, name, inputs in zip(*columns, strict=True):
        if point is not None and op_type in OF_OPERATOR[records[point]["main_operator"]]:
            read_format = NZ if NZ in (inputs or ()) else "ND"
            found.setdefault(point, set()).add((name.split("_")[0], read_format))
    return {
        point: Proof(
            pairs[0][0] if len({name for name, _ in pairs}) == 1 else None,
            tuple(sorted({read_format for _, read_format in pairs})),
        )
        for point, kinds in found.items()
        if (pairs := sorted(kinds))
    }


def _counted(names: Iterable[str]) -> str:
    counted = sorted(Counter(names).items())
    return ", ".join(f"{count} {name}" for name, count in counted) or "no"
