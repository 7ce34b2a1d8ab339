"""Second-lease confirmation: only the same point, slower or faster again, counts."""

from __future__ import annotations

import pyarrow as pa

from tilewatch.data_contracts import conform
from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.sql import sql

_KEY = "experiment, base_arm, candidate_arm, point_id, metric"

_CONFIRM = f"""
SELECT first.* REPLACE (
    CASE WHEN first.verdict IN ('FASTER', 'SLOWER') AND again.point_id IS NOT NULL
         THEN again.verdict = first.verdict END AS confirmed)
FROM (SELECT *, row_number() OVER () AS position FROM first) first
LEFT JOIN again USING ({_KEY})
ORDER BY position
"""


def confirm(first: pa.Table, second: pa.Table) -> pa.Table:
    """``first`` with ``confirmed``: True where ``second`` says the same of the point, else False.

    Null for rows that are neither FASTER nor SLOWER and for rows that ``second`` does not have. Raises
    AnalysisError where both tables rest on the same candidate runs: a lease cannot confirm itself.
    """
    ids = "SELECT DISTINCT unnest(candidate_run_ids) AS run_id FROM {}"
    shared = sql(f"{ids.format('first')} INTERSECT {ids.format('again')}", {"first": first, "again": second})
    if shared.num_rows:
        runs = ", ".join(sorted(shared["run_id"].to_pylist()))
        raise AnalysisError(f"a lease cannot confirm itself: both comparisons use run {runs}")
    found = sql(_CONFIRM, {"first": first, "again": second})
    return conform("comparisons", found.drop_columns(["position"]))
