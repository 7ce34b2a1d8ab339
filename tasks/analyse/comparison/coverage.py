"""What became of the points that a candidate has to answer for: compared, refused, missing, not judged.

A comparison without a SLOWER row is calm only where the points were compared at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tilewatch.tasks.sql import sql

_COVERAGE = """
WITH armed AS (
    SELECT CASE WHEN verdict = 'MISSING' THEN 'missing'
                WHEN refused IS NOT NULL THEN 'refused'
                WHEN q_value IS NULL OR control_status = 'void' THEN 'not judged'
                ELSE 'compared' END AS fate, verdict_reason
    FROM comparisons WHERE base_ns IS NOT NULL
)
SELECT fate, verdict_reason AS reason, count(*) AS points FROM armed GROUP BY ALL
ORDER BY points DESC, fate, reason
"""


SHOWN_REASONS = 2
_FATES = ("compared", "refused", "missing", "not judged")


@dataclass(frozen=True)
class Coverage:
    """Points with a baseline value (``armed``) by what became of them; the rest adds up to ``armed``.

    ``not_judged``: both sides have values and no verdict is possible, for want of processes or because the
    A/A control voids the sweep. ``reasons`` are why points were not compared, the most frequent first.
    """

    armed: int
    compared: int
    refused: int
    missing: int
    not_judged: int
    reasons: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether there were armed points and every one of them was compared."""
        return 0 < self.armed == self.compared

    @property
    def counts(self) -> str:
        """The counts in words: ``100 points armed, 98 compared, 1 refused, 1 missing``."""
        parts = [
            f"{self.armed} {'point' if self.armed == 1 else 'points'} armed", f"{self.compared} compared",
            f"{self.refused} refused", f"{self.missing} missing",
        ]  # fmt: skip
        return ", ".join(parts + ([f"{self.not_judged} not judged"] if self.not_judged else []))

    @property
    def sentence(self) -> str:
        """The counts; where a point was not compared, that and the first reasons why."""
        if self.whole:
            return f"{self.counts}."
        why = "; ".join(self.reasons[:SHOWN_REASONS]) or "the baseline has no value in this comparison"
        return f"not comparable: {self.counts} ({why})."


def coverage(comparisons: pa.Table) -> Coverage:
    """What became of the armed points of a ``comparisons`` table: those that the baseline has a value of.

    Points with nothing to time have no value on either side and are none of them.
    """
    rows = sql(_COVERAGE, {"comparisons": comparisons}).to_pylist()
    number = {fate: sum(r["points"] for r in rows if r["fate"] == fate) for fate in _FATES}
    reasons = tuple(r["reason"] for r in rows if r["fate"] != "compared")
    return Coverage(
        sum(number.values()), number["compared"], number["refused"], number["missing"],
        number["not judged"], reasons,
    )  # fmt: skip
