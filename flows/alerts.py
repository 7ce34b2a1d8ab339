"""Alerts: few, ranked, with cause, report and the command that shows it again; one quiet line otherwise.

An alert is a Prefect artifact and an event of the same content, which an automation of `tilewatch deploy`
sends on where an address is set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from prefect.artifacts import create_markdown_artifact
from prefect.events import emit_event

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.flows.steps.judge import Comparison
from tilewatch.infra.fleet_names import NOT_COMPARABLE_EVENT, REGRESSION_EVENT
from tilewatch.tasks.analyse.comparison.coverage import coverage
from tilewatch.tasks.publish.display import duration, ratio
from tilewatch.tasks.publish.summary import comparison_summary, point_words, worst_first

SHOWN_ROWS = 3
Row = dict[str, Any]


NOT_COMPARABLE = 5
"""Exit code of a watch that was blind."""


class NotComparableError(TilewatchError):
    """A watch that could not compare every armed point: nothing can be said of the rest.

    ``text`` is what it told, and ``rows`` the comparison, of what was compared.
    """

    exit_code = NOT_COMPARABLE

    def __init__(self, message: str, hint: str, text: str, rows: pa.Table) -> None:
        super().__init__(message, hint)
        self.text, self.rows = text, rows


def confirmed_slower(rows: pa.Table) -> pa.Table:
    """The rows that a second lease found SLOWER again, worst first."""
    return worst_first(rows.filter(pc.and_kleene(pc.equal(rows["verdict"], "SLOWER"), rows["confirmed"])))


def alert(key: str, comparison: Comparison, command: str, cause: Callable[[Row], str] | None = None) -> str:
    """Leave the outcome as artifact ``key``; emit an event where something got slower, or was not compared.

    Returns the text.
    """
    covered = coverage(comparison.rows)
    slower = confirmed_slower(comparison.rows)
    count = int(slower.num_rows)
    if count:
        worst = slower.slice(0, SHOWN_ROWS).to_pylist()
        text = loud(comparison, worst, count, command, cause or build_cause)
    else:
        text = quiet(comparison)
    if count and not covered.whole:
        text = f"**{_capital(covered.sentence)}**\n\n{text}"
    create_markdown_artifact(text, key=key)
    if count or not covered.whole:
        _tell(REGRESSION_EVENT if count else NOT_COMPARABLE_EVENT, comparison, count, text)
    return text


def _tell(event: str, comparison: Comparison, slower: int, text: str) -> None:
    first = comparison.rows.slice(0, 1).to_pylist()
    build, candidate = (first[0]["build"], first[0]["candidate"]) if first else ("unknown", "unknown")
    emit_event(
        event=event,
        resource={"prefect.resource.id": f"tilewatch.build.{build}"},
        payload={"slower": slower, "candidate": candidate, "text": text, "at": comparison.address},
    )


def refuse_uncompared(comparison: Comparison, command: str, text: str) -> None:
    """Raise NotComparableError where an armed point was refused, is missing, or could not be judged."""
    covered = coverage(comparison.rows)
    if not covered.whole:
        raise NotComparableError(
            covered.sentence,
            f"`{command}` shows every point; measure as the baseline was, or approve another",
            text,
            comparison.rows,
        )


def quiet(comparison: Comparison) -> str:
    """What was compared and the link, where nothing got slower."""
    summary = comparison_summary(comparison.rows)
    unconfirmed = summary.counts["SLOWER"]
    sentence = (
        f"{_capital(summary.coverage.sentence)} {unconfirmed} points were SLOWER once and not in a second "
        "lease; no alarm."
        if unconfirmed
        else summary.sentence
    )
    return f"{sentence}\n\nPublished at `{comparison.address}`, [report]({comparison.report.as_uri()})\n"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def loud(
    comparison: Comparison, worst: list[Row], count: int, command: str, cause: Callable[[Row], str]
) -> str:
    """The worst rows with what they rest on and their causes."""
    lines = [
        f"**{count} {'point is' if count == 1 else 'points are'} SLOWER than in {worst[0]['baseline']}, "
        "confirmed in a second lease.**",
        "",
        "| point | ratio | before | now | cause |",
        "|---|---|---|---|---|",
    ]
    for row in worst:
        times = f"{duration(row['base_ns'])} | {duration(row['candidate_ns'])}"
        interval = f"{ratio(row['ratio'])} ({ratio(row['ratio_low'])} to {ratio(row['ratio_high'])})"
        lines.append(f"| {point_words(row)} | {interval} | {times} | {cause(row)} |")
    lines += [
        "",
        f"Published at `{comparison.address}`, [report]({comparison.report.as_uri()})",
        "",
        f"Again: `{command}`",
    ]
    return "\n".join(lines) + "\n"


def build_cause(row: Row) -> str:
    """The cause as the comparison itself knows it."""
    return str(row["cause"] or "unknown")


def plain(text: str) -> str:
    """An alert as a terminal shows it: no marks, one line a point, paths instead of links."""
    lines = []
    for line in text.replace("**", "").replace("`", "").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            lines.append(re.sub(r"\[(\w+)\]\(file://([^)]*)\)", r"\1: \2", line))
        elif cells[0] not in ("point", "---"):
            point, ratio_text, before, now, cause = cells
            lines.append(f"  {point}: {ratio_text}, {before} before, {now} now; {cause}")
    return "\n".join(lines).strip()
