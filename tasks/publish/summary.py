"""Sweeps and comparisons in one sentence and one small table, as plain data for terminals and artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilewatch.tasks.analyse.comparison.coverage import Coverage, coverage
from tilewatch.tasks.publish.display import axis_name, count, duration, experiment_name, ratio
from tilewatch.tasks.publish.run_report.curves import curve_points
from tilewatch.tasks.sql import sql

Row = dict[str, Any]

VERDICTS = ("SLOWER", "FASTER", "MISSING", "UNDECIDED", "SAME")
"""Worst first: the order in which a person wants to read them. NOT_APPLICABLE is no verdict: not counted."""

_SWEEP = """
SELECT experiment, curve, source, arm, any_value(axis) AS axis, any_value(evidence) AS evidence,
       count(*) AS points, count(value_ns) AS timed_points, count(*) FILTER (status = 'missing') AS missing,
       min(processes) FILTER (value_ns IS NOT NULL) AS processes,
       min(axis_value) FILTER (value_ns IS NOT NULL) AS first_axis_value, arg_min(value_ns, axis_value)
           FILTER (value_ns IS NOT NULL) AS first_ns,
       max(axis_value) FILTER (value_ns IS NOT NULL) AS last_axis_value, arg_max(value_ns, axis_value)
           FILTER (value_ns IS NOT NULL) AS last_ns
FROM curves GROUP BY experiment, curve, source, arm ORDER BY experiment, curve, source, arm
"""

_WORST_FIRST = """
SELECT * FROM comparisons
ORDER BY list_position(['SLOWER', 'FASTER', 'MISSING', 'UNDECIDED', 'SAME', 'NOT_APPLICABLE'], verdict),
         abs(ln(ratio)) DESC NULLS LAST, experiment, linear, candidate_arm, axis_value, point_id, base_arm,
         compared_by
"""


@dataclass(frozen=True)
class ComparisonSummary:
    """Verdict counts in the order of VERDICTS (absent ones 0), the worst rows first, and what they say.

    ``sentence`` tells first how many of the armed points were compared at all, and then of the worst row.
    """

    counts: dict[str, int]
    worst: list[Row]
    sentence: str
    coverage: Coverage


def sweep_summary(runs: pa.Table, captures: pa.Table, points: pa.Table, samples: pa.Table) -> pa.Table:
    """One row per experiment, curve, source and arm.

    ``points, timed_points, missing``; the fewest ``processes`` behind a timed point; ``first_axis_value``
    and ``last_axis_value`` with their point values ``first_ns`` and ``last_ns`` (null where nothing is
    timed, as for tuple input).
    """
    return sql(_SWEEP, {"curves": curve_points(runs, captures, points, samples)})


def sweep_sentence(runs: pa.Table, points: pa.Table) -> str:
    """What was measured, on what, how much of it."""
    experiments = [experiment_name(letter) for letter in _distinct(runs, "experiment")]
    processes = sum(runs["planned_processes"].to_pylist())
    doing = "Simulated" if "simulated" in runs["evidence"].to_pylist() else "Measured"
    return (
        f"{doing} {', '.join(experiments)} on {', '.join(_distinct(runs, 'device_class'))} with build "
        f"{', '.join(_distinct(runs, 'build'))}: {count(points.num_rows, 'point')} in "
        f"{count(processes, 'process')}, {count(runs['sample_count'].to_numpy().sum(), 'sample')}."
    )


def comparison_summary(comparisons: pa.Table, rows: int = 10) -> ComparisonSummary:
    """Counts by verdict, the ``rows`` worst rows (SLOWER by ratio, then FASTER …) and a sentence."""
    found = comparisons["verdict"].to_pylist()
    counts = {verdict: found.count(verdict) for verdict in VERDICTS}
    worst = worst_first(comparisons).slice(0, rows).to_pylist()
    covered = coverage(comparisons)
    return ComparisonSummary(counts, worst, _sentence(counts, worst, covered), covered)


def worst_first(comparisons: pa.Table) -> pa.Table:
    """All rows: by verdict in the order of VERDICTS, then by the size of the difference."""
    return sql(_WORST_FIRST, {"comparisons": comparisons})


def point_words(row: Row) -> str:
    """A compared point in words: ``quant_matmul wq_a M 64, arm nz``."""
    name = " ".join(part for part in (experiment_name(row["experiment"]), row["linear"]) if part)
    arms = row["base_arm"] if row["base_arm"] == row["candidate_arm"] else None
    arm = f"arm {arms}" if arms else f"arm {row['candidate_arm']} against {row['base_arm']}"
    regime = "".join(f", {row[key]}" for key in ("allocation_regime", "group_shape") if row[key])
    return f"{name} {axis_name(row['axis'])} {row['axis_value']}{regime}, {arm}"


def _sentence(counts: dict[str, int], worst: Sequence[Row], covered: Coverage) -> str:
    if not worst:
        return "Nothing was compared."
    said = covered.sentence[0].upper() + covered.sentence[1:]
    return f"{said} {answer_words(worst[0])} {_worst_sentence(counts, worst[0], covered)}".replace(
        "  ", " "
    ).strip()


def answer_words(row: Row, level: str = "build") -> str:
    """The answer of one level in a sentence: the mean ratio with its interval, and what no point exceeds.

    Empty without an answer: no point had enough processes, or the sweep is void.
    """
    verdict = row.get(f"{level}_verdict")
    if not verdict:
        return ""
    found, low, high, worst = (row[f"{level}_{name}"] for name in ("ratio", "low", "high", "worst"))
    said = (
        f"{level_words(row, level)} is {verdict}: {ratio(found)} on average ({ratio(low)} to {ratio(high)})"
    )
    if worst <= 1:
        return f"{said}, and no point of it is slower."
    return f"{said}, and no point of it is slower by more than {worst - 1:.1%}."


def level_words(row: Row, level: str) -> str:
    """What a level is called: the build, an experiment, an operator, a curve."""
    against = "" if row["base_arm"] == row["candidate_arm"] else f" against {row['base_arm']}"
    arm = f"{row['candidate_arm']}{against}"
    return {
        "build": "All that was compared",
        "experiment": f"Experiment {experiment_name(row['experiment'])}",
        "operator": f"Operator {row['operator']}",
        "curve": f"{experiment_name(row['experiment'])} {row['linear'] or ''} {arm}",
    }[level].replace("  ", " ")


def answers_of(comparisons: pa.Table, level: str) -> list[str]:
    """One sentence a group of ``level`` that has an answer, the slowest first."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in comparisons.to_pylist():
        if row[f"{level}_verdict"]:
            found.setdefault((level_words(row, level), row[f"{level}_ratio"]), row)
    rows = sorted(found.values(), key=lambda row: -row[f"{level}_ratio"])
    return [answer_words(row, level) for row in rows]


def _worst_sentence(counts: dict[str, int], first: Row, covered: Coverage) -> str:
    """What the worst row says; nothing where no verdict would be an answer."""
    if first["verdict"] not in ("SLOWER", "FASTER"):
        if not covered.compared:
            return ""
        parts = [f"{number} {verdict}" for verdict, number in counts.items() if number]
        return (
            f"No compared point of {first['candidate']} got slower or faster than in {first['baseline']}: "
            f"{', '.join(parts)}."
        )
    if first["compared_by"] == "arm":
        base, candidate = f"with {first['base_arm']}", f"with {first['candidate_arm']}"
    else:
        base, candidate = f"in {first['baseline']}", f"in {first['candidate']}"
    lead = "" if first["verdict"] == "SLOWER" else "No compared point got slower. "
    return (
        f"{lead}{point_words(first)} is {first['verdict']}: {ratio(first['ratio'])} "
        f"(95 % interval {ratio(first['ratio_low'])} to {ratio(first['ratio_high'])}), "
        f"{duration(first['base_ns'])} {base}, {duration(first['candidate_ns'])} {candidate}"
        f"{'; ' if first['cause'] else ''}{first['cause'] or ''}."
    )


def _distinct(table: pa.Table, column: str) -> list[str]:
    return sorted(set(table[column].to_pylist()))
