"""`tilewatch run`: measure experiments on this machine, or resume an interrupted run."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from tilewatch.flows.cli.exits import FAILED, INTERRUPTED, told
from tilewatch.flows.cli.output import complain, err, out, show_rows, show_table, warn
from tilewatch.flows.cli.progress import shown
from tilewatch.infra import prefect_settings, spool
from tilewatch.infra.settings import load_settings
from tilewatch.tasks.plan.choices import DEFAULT_SOC, Agent, AnyPreset

if TYPE_CHECKING:
    from tilewatch.flows.side_by_side import SideBySide
    from tilewatch.flows.steps.judge import Comparison
    from tilewatch.flows.steps.report import SweepReport
    from tilewatch.flows.steps.requests import SweepRequest


LAUNCH_HEAD = (
    "experiment", "arm", "weights", "launches", "TTFT", "TPOT", "output throughput", "request throughput",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(run)


def run(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(help="A DynamicQuant, B QuantMatmul, C NZ against ND, D GroupedMatmul, E serving."),
    ] = None,
    preset: Annotated[
        AnyPreset,
        typer.Option(help="How much: smoke a minute, quick some minutes, full hours; reference_ci: E's CI."),
    ] = "quick",
    agent: Annotated[
        Agent,
        typer.Option(help="What executes: this CPU's reference kernels, or an NPU through torch_npu."),
    ] = "cpu",
    build: Annotated[
        str | None, typer.Option(help="Label of the build under test [default: made from its components].")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with this interrupted run; the rest is measured.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of order and inputs; 0 takes the clock.")] = 0,
    processes: Annotated[
        int | None, typer.Option(min=2, max=100, help="Processes per arm [default: the preset's].")
    ] = None,
    axis: Annotated[
        str | None,
        typer.Option(help="M instead of the preset's: a named list (decode, prefill), or 7,14,28."),
    ] = None,
    point: Annotated[str | None, typer.Option(help="Measure this point_id alone.")] = None,
    arm: Annotated[str | None, typer.Option(help="Measure this arm alone.")] = None,
    refine: Annotated[
        list[str] | None,
        typer.Option(metavar="CANN", help="Add both sides of every boundary predicted for this version."),
    ] = None,
    soc: Annotated[str, typer.Option(help="SoC to predict boundaries for.")] = DEFAULT_SOC,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=SET_ENV",
            help="A build of this host: LABEL=/path/set_env.sh, also ,python=PATH and ,library_path=PATH. "
            "Several are measured as arms of one sweep; the first is the baseline.",
        ),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST-N",
            help="Devices of the fleet that share the work, whole ABBA blocks each [default: this device].",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Measure, archive, validate, tabulate and report.

    Every arm is measured by fresh processes in ABBA order; E starts a fresh server for each. Ctrl-C keeps
    what is measured and says how to go on. `tilewatch run` without letters runs A B C D.
    """
    with told():
        prefect_settings.apply(load_settings().home)
        from tilewatch.flows.steps.requests import SweepRequest
        from tilewatch.tasks.measure.environment import parse_environment

        request = SweepRequest(
            experiments=tuple(experiments or ("A", "B", "C", "D")),
            preset=preset,
            agent=agent,
            build=build,
            resume=resume,
            seed=seed,
            processes=processes,
            axis=axis,
            point=point,
            arm=arm,
            refine=tuple(refine or ()),
            soc=soc,
            environments=tuple(parse_environment(text) for text in environment or ()),
            devices=tuple(device or ()),
            command=shlex.join(["tilewatch", *sys.argv[1:]]),
        )
        done = measured(request)
    for report in done.sweeps:
        show_report(report, as_json)
    for comparison in done.comparisons:
        labels = {report.run_id: report.build for report in done.sweeps}
        show_comparison(comparison, labels, as_json)
    if any(report.failed for report in done.sweeps):
        raise typer.Exit(FAILED)


def measured(request: SweepRequest) -> SideBySide:
    """Carry out the request with progress; leaves with INTERRUPTED, and how to go on, when stopped."""
    from prefect import tags

    from tilewatch.flows.side_by_side import SideBySide, runs_beside, side_by_side
    from tilewatch.flows.sweep import check, sweep

    settings, resume = load_settings(), request.resume
    before = set(spool.runs(settings))
    check(request)
    prefect_settings.ready()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill stops as ctrl-C does
    try:
        with shown(), tags("tilewatch", request.agent, request.preset):
            together = len(runs_beside(settings, resume) if resume else request.environments) > 1
            return side_by_side(request) if together else SideBySide((sweep(request),), ())
    except KeyboardInterrupt:
        new = sorted(set(spool.runs(settings)) - before)
        run_id = resume or (new[-1] if new else None)
        if run_id is None:
            err.print("stopped before anything was measured")
        else:
            err.print(f"stopped; what was measured is kept. Go on with: tilewatch run --resume {run_id}")
        raise typer.Exit(INTERRUPTED) from None


def show_report(report: SweepReport, as_json: bool) -> None:
    """Print what one run came to; warnings and failures go to stderr."""
    if as_json:
        show_table(whole_summary(report), as_json=True)
    else:
        if report.summary.num_rows or not report.serving:
            head = ("experiment", "curve", "arm", "points", "processes", "from", "to")
            show_rows(head, summary_rows(report.summary))
        for page in report.serving.values():
            show_rows(LAUNCH_HEAD, launch_rows(page.summary))
        out.print(report.sentence, soft_wrap=True)
    for warning in report.warnings:
        warn(warning)
    if not as_json:
        out.print(f"run {report.run_id}, build {report.build}")
        for path in report.pages or (report.path,):
            out.print(f"report: {path}", soft_wrap=True)
    if report.failed:
        complain("no process of an experiment completed", f"tilewatch show {report.run_id} says why")


def show_comparison(comparison: Comparison, labels: Mapping[str, str], as_json: bool) -> None:
    """Print how one build compares with the first of the same sweep; ``labels`` names builds by run id."""
    if as_json:
        show_table(comparison.rows, as_json=True)
        return
    from tilewatch.tasks.publish.summary import comparison_summary

    builds = (labels[comparison.rows[side][0].as_py()] for side in ("candidate", "baseline"))
    out.print(f"{' against '.join(builds)}: {comparison_summary(comparison.rows).sentence}", soft_wrap=True)
    out.print(f"report: {comparison.report}", soft_wrap=True)


def whole_summary(report: SweepReport) -> pa.Table:
    """Summary rows of operators, then of serving; a column that the other kind has is null."""
    parts = [report.summary] if report.summary.num_rows or not report.serving else []
    parts += [page.summary for page in report.serving.values()]
    return pa.concat_tables(parts, promote_options="default")


def launch_rows(summary: pa.Table) -> list[tuple[str, ...]]:
    """The summary of serving as a person reads it: one line an arm."""
    from tilewatch.tasks.publish.serving_report.words import metric_value

    rows = []
    for row in summary.to_pylist():
        failed = f", {row['failed']} failed" if row["failed"] else ""
        launches = f"{row['launches']} timed, {row['profiled']} profiled{failed}"
        metrics = ("ttft_ns", "tpot_ns", "output_token_per_s", "request_per_s")
        values = (metric_value(name, row[name]) for name in metrics)
        rows.append((row["experiment"], row["arm"], row["weight_format"] or "–", launches, *values))
    return rows


def summary_rows(summary: pa.Table) -> list[tuple[str, ...]]:
    """The summary of a sweep as a person reads it: one line a curve and arm, both ends of the axis."""
    from tilewatch.tasks.publish.display import axis_name, duration

    rows = []
    for row in summary.to_pylist():
        ends = [
            f"{axis_name(row['axis'])} {row[f'{end}_axis_value']}: {duration(row[f'{end}_ns'])}"
            if row[f"{end}_ns"] is not None
            else "nothing to time"
            for end in ("first", "last")
        ]
        missing = f" ({row['missing']} missing)" if row["missing"] else ""
        counts = f"{row['points']}{missing}", str(row["processes"] or "–")
        rows.append((row["experiment"], row["curve"], row["arm"], *counts, *ends))
    return rows
