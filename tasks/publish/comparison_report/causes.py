"""Why a compared point got slower or faster, in one sentence that pages, alerts and the command line share.

Two things are named, and never mixed: what changed in the observed tiling of the kernel, and which component
of the build changed. Of several components the cause is not separable; the tiling change is one all the same.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.publish.comparison_report.tiling_changes import TilingChanges
from tilewatch.tasks.publish.run_report.bands import Row

CHANGED = ("SLOWER", "FASTER")


def with_causes(comparisons: pa.Table, alignments: pa.Table, tilings: pa.Table) -> pa.Table:
    """``comparisons`` with ``cause`` filled in where a verdict says that something changed and none is there.

    ``alignments`` and ``tilings`` are those of both sides' runs.
    """
    lacking = pc.and_(pc.is_in(comparisons["verdict"], pa.array(CHANGED)), pc.is_null(comparisons["cause"]))
    if not pc.any(lacking).as_py():
        return comparisons
    changes = TilingChanges(alignments, tilings)
    found = [
        cause_of(row, changes) if asked else row["cause"]
        for row, asked in zip(comparisons.to_pylist(), lacking.to_pylist(), strict=True)
    ]
    place = comparisons.column_names.index("cause")
    return comparisons.set_column(place, comparisons.schema.field(place), pa.array(found, pa.string()))


def cause_of(row: Row, changes: TilingChanges) -> str:
    """The cause of one row of ``comparisons`` that is SLOWER or FASTER."""
    before, now = row["base_operator"], row["candidate_operator"]
    tiling = changes.of(row)
    parts = [
        f"cause: tiling changed, {tiling}" if tiling else "no tiling change observed",
        f"dispatched {now} instead of {before}" if before and now and before != now else "",
        _components(row) if row["compared_by"] == "build" else "",
    ]
    return "; ".join(part for part in parts if part)


def _components(row: Row) -> str:
    """What changed in the build."""
    changed = row["changed_components"]
    if not changed:
        return "the build did not change: look at the machine"
    if row["cause_separable"]:
        return f"changed component {changed[0]}"
    return f"changed components {', '.join(changed)}, between which the cause is not separable"
