"""Anchor kernels: what both builds run and W8A8 work does not touch; they show how far two leases drifted."""

from __future__ import annotations

import pyarrow as pa

from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.sql import sql

ANCHOR_COLUMNS = ("experiment", "arm", "point_id")

_ANCHORS = """
SELECT DISTINCT experiment, arm, point_id FROM base SEMI JOIN candidate USING (experiment, arm, point_id)
ORDER BY ALL
"""
_BF16 = "SELECT * FROM points WHERE operator IN ('matmul', 'grouped_matmul') AND dtype_w = 'bfloat16'"


def anchor_kernels(base: RunTables, candidate: RunTables) -> pa.Table:
    """The BF16 counterparts that both sides measured, as ANCHOR_COLUMNS; empty where there are none.

    A build may change them too. Then the floor between leases is wider than it had to be: a verdict may be
    withheld, and none is given that the leases alone could have made.
    """
    sides = {name: sql(_BF16, {"points": s.points}) for name, s in (("base", base), ("candidate", candidate))}
    return sql(_ANCHORS, sides)
