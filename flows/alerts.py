"""Alerts: few, ranked, with cause, report and the command that shows it again; one quiet line otherwise.

An alert is a Prefect artifact and an event of the same content, which an automation of `tilewatch deploy`
sends on where an address is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from prefect.artifacts import create_markdown_artifact
from prefect.events import emit_event

from tilewatch.flows.compare import Comparison
from tilewatch.infra.fleet_names import REGRESSION_EVENT
from tilewatch.tasks.publish.display import duration, ratio
from tilewatch.tasks.publish.summary import comparison_summary, point_words, worst_first

SHOWN_ROWS = 3
Row = dict[str, Any]


def confirmed_slower(rows: pa.Table) -> pa.Table:
    """The rows that a second lease found SLOWER again, worst first."""
    return worst_first(rows.filter(pc.and_kleene(pc.equal(rows["verdict"], "SLOWER"), rows["confirmed"])))


def alert(key: str, comparison: Comparison, command: str, cause: Callable[[Row], str] | None = None) -> str:
    """Leave the outcome as artifact ``key``; emit an event where something got slower. Returns the text."""
    slower = confirmed_slower(comparison.rows)
    count = int(slower.num_rows)
    if not count:
        calm = quiet(comparison)
        create_markdown_artifact(calm, key=key)
        return calm
    worst = slower.slice(0, SHOWN_ROWS).to_pylist()
    text = loud(comparison, worst, count, command, cause or build_cause)
    create_markdown_artifact(text, key=key)
    candidate = worst[0]["candidate"]
    emit_event(
        event=REGRESSION_EVENT,
        resource={"prefect.resource.id": f"tilewatch.build.{worst[0]['build']}"},
        payload={"slower": count, "candidate": candidate, "text": text, "at": comparison.address},
    )
    return text


def quiet(comparison: Comparison) -> str:
    """One sentence and the link, where there is nothing to be alarmed about."""
    summary = comparison_summary(comparison.rows)
    unconfirmed = summary.counts["SLOWER"]
    sentence = (
        f"{unconfirmed} points were SLOWER once and not in a second lease; no alarm."
        if unconfirmed
        else summary.sentence
    )
    return f"{sentence}\n\nPublished at `{comparison.address}`, [report]({comparison.report.as_uri()})\n"


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
    """What the comparison itself knows of the cause: another operator, or what changed in the build."""
    before, now = row["base_operator"], row["candidate_operator"]
    if before and now and before != now:
        return f"dispatched {now} instead of {before}"
    changed = ", ".join(row["changed_components"])
    if not changed:
        return "the build did not change: look at the machine"
    return changed if row["cause_separable"] else f"one of: {changed}"
