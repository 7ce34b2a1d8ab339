"""The top of the report: the sentence that matters first, banners, the A/A control."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.publish.display import count
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.environment import mixed_builds
from tilewatch.tasks.publish.summary import comparison_summary, sweep_sentence

CPU_BANNER = (
    "CPU reference kernels: real numbers of this CPU that tell nothing about an NPU. They have no tiling, "
    "so no step of a curve can be explained by one."
)
SIMULATED_BANNER = (
    "SIMULATED: these numbers come from a model, not from a device. Nothing on this page was measured."
)


@dataclass(frozen=True)
class Headline:
    """``sentences`` in the order to read them; ``banners`` stand above everything else."""

    sentences: list[str]
    banners: list[str]
    control: str
    control_ok: bool


def headline(content: ReportContent) -> Headline:
    """Worst row with its ratio and cause where there is a comparison, then what was measured."""
    sentences = []
    if content.comparisons.num_rows:
        by_build = content.comparisons.filter(pc.field("compared_by") == "build")
        summary = comparison_summary(by_build if by_build.num_rows else content.comparisons)
        sentences.append(summary.sentence)
    sentences.append(sweep_sentence(content.runs, content.points))
    return Headline(sentences, _banners(content), *_control(content))


def _banners(content: ReportContent) -> list[str]:
    banners = [SIMULATED_BANNER] if content.simulated else []
    if "cpu" in content.distinct("agent"):
        banners.append(CPU_BANNER)
    banners += mixed_builds(content.runs)
    for run in content.runs.to_pylist():
        if run["status"] != "complete":
            reason = run["status_reason"] or "no reason recorded"
            banners.append(f"Run {run['run_id']}, {run['experiment']}: {run['status']} ({reason}).")
    return banners


def _control(content: ReportContent) -> tuple[str, bool]:
    """The error rate that identical pairs show, so that a verdict can be believed, or not."""
    if content.comparisons.num_rows:
        return control_of(content.comparisons)
    runs = content.runs.to_pylist()
    pairs = sum(run["control_pairs"] for run in runs)
    rate = sum(run["control_false_pairs"] for run in runs) / pairs if pairs else None
    states = {run["control_status"] for run in runs}
    state = next((name for name in ("void", "insufficient", "ok") if name in states), "insufficient")
    return _control_words(pairs, rate, state)


def control_of(comparisons: pa.Table) -> tuple[str, bool]:
    """What stands on top of a table of comparisons: the A/A control in words, and whether verdicts count."""
    (first,) = comparisons.slice(0, 1).to_pylist()
    return _control_words(*(first[f"control_{name}"] for name in ("pairs", "false_rate", "status")))


def _control_words(pairs: int, rate: float | None, state: str) -> tuple[str, bool]:
    called = "" if rate is None else f", {rate:.1%} of them called FASTER or SLOWER"
    meaning = {
        "ok": "ok",
        "insufficient": "insufficient – under 20 pairs the error rate is not known",
        "void": "void – the error rate is over its limit, no verdict counts",
    }[state]
    return f"A/A control: {count(pairs, 'identical pair')}{called}. Control: {meaning}.", state == "ok"
