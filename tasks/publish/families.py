"""Kinds of comparison that are published: each names its table, its place, and what a row is about.

Everything that happens to a published comparison (address, versions, old verdicts, retention, judging again)
is written once, over FAMILIES. A further kind is one more entry here and a contract for its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

ROOT = "comparisons"
NEEDED = (
    "comparison_id", "version", "build", "baseline", "candidate", "base_build_id", "candidate_build_id",
    "overrides", "analysis_version", "evidence", "verdict", "verdict_reason",
)  # fmt: skip
"""Columns that the table of every family has."""


@dataclass(frozen=True)
class Family:
    """One kind of comparison.

    ``table`` is its contract, with the columns NEEDED. ``row_key`` are the columns that name a row within a
    version, so that its verdicts in two versions can be held beside each other; ``words`` is an SQL text over
    one row: what it is about, for a person. ``stands_on`` are the columns (lists) with the runs or captures
    of both sides; ``published`` is an SQL condition for the rows of the table that are published.
    """

    name: str
    table: str
    row_key: tuple[str, ...]
    words: str
    folder: str = ""
    stands_on: tuple[str, str] = ("base_run_ids", "candidate_run_ids")
    published: str = "true"

    def pair_folder(self, baseline: str, candidate: str) -> str:
        """Key prefix of a pair, without a closing slash; labels are quoted, so any label is one level."""
        pair = f"{ROOT}/{quote(baseline, safe='')}/{quote(candidate, safe='')}"
        return f"{pair}/{self.folder}" if self.folder else pair

    def address(self, baseline: str, candidate: str, version: int) -> str:
        """Key prefix of one version."""
        return f"{self.pair_folder(baseline, candidate)}/v{version}"


OPERATORS = Family(
    name="operators",
    table="comparisons",
    row_key=("experiment", "base_arm", "candidate_arm", "point_id", "metric"),
    words="concat_ws(' ', candidate_arm, linear, axis_value)",
)
SERVING = Family(
    name="serving",
    table="serving_comparisons",
    row_key=("experiment", "base_arm", "candidate_arm", "load_id", "metric"),
    words="concat_ws(', ', candidate_arm, load, metric)",
    folder="serving",
    published="compared_by = 'build'",
)
FAMILIES = (OPERATORS, SERVING)
