"""The logs of a tiling process → ``tilings`` with their points: launches come in the order of its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.plan.kernel_types import DYNAMIC_QUANT, MAIN_KERNELS
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.reader import LogFile, read_plog
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult

FOLDER = "log"
LAUNCHES: dict[str, tuple[tuple[str, ...], ...]] = {
    operation: ((DYNAMIC_QUANT, types) if operation == "quant_linear" else (types,))
    for operation, types in MAIN_KERNELS.items()
}
"""Operator types that one call of an operation launches, in order."""

_KNOWN = pa.array(sorted({name for types in MAIN_KERNELS.values() for name in types}), pa.string())
Expected = list[tuple[str, tuple[str, ...]]]


def read_tilings(
    folder: Path, origin: Origin, calls: Sequence[tuple[str, str]], cann_version: str | None
) -> ReadResult:
    """Records of all logs below ``folder``/log; ``calls`` are (point id, operation) in the order made.

    The launches of known operators must be exactly those of the calls. Where they are not, no record gets a
    point, since a shifted one would explain the wrong point, and quarantine says what was expected.
    """
    paths = sorted(path for path in (folder / FOLDER).rglob("*.log") if path.is_file())
    files = [LogFile(path, path.relative_to(folder).as_posix()) for path in paths]
    result = read_plog(files, origin, cann_version=cann_version)
    expected = [(point, types) for point, operation in calls for types in LAUNCHES[operation]]
    rows = _launches(result.table)
    op_types = result.table["op_type"].take(rows).to_pylist()
    if fault := _fault(expected, op_types):
        refused = refused_rows(origin, "tilings", [Refusal(FOLDER, None, "tiling_count", fault)])
        return ReadResult(result.table, pa.concat_tables([result.quarantine, refused]), result.facts)
    ids: list[str | None] = [None] * result.table.num_rows
    for row, (point, _) in zip(rows.to_pylist(), expected, strict=True):
        ids[row] = point
    index = result.table.schema.get_field_index("point_id")
    named = result.table.set_column(index, result.table.schema.field(index), pa.array(ids, pa.string()))
    return ReadResult(named, result.quarantine, result.facts)


def _launches(tilings: pa.Table) -> pa.Array:
    """Row numbers of the launches of known operators, in the order of files and lines."""
    known = pc.indices_nonzero(pc.is_in(tilings["op_type"], value_set=_KNOWN))
    order = [("source_file", "ascending"), ("source_line", "ascending")]
    return known.take(pc.sort_indices(tilings.take(known), order))


def _fault(expected: Expected, found: list[str]) -> str | None:
    """Why the launches found are not the expected ones, or None."""
    if len(expected) != len(found):
        wanted = _counted(types[-1] for _, types in expected)
        return f"expected {wanted} launches, found {_counted(iter(found))}; nothing is attributed"
    for number, ((_, types), op_type) in enumerate(zip(expected, found, strict=True), start=1):
        if op_type not in types:
            return f"launch {number} is {op_type}, expected {' or '.join(types)}; nothing is attributed"
    return None


def _counted(names: Iterator[str]) -> str:
    counted = sorted(Counter(names).items())
    return ", ".join(f"{count} {name}" for name, count in counted) or "no"
