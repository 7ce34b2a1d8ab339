"""`tilewatch compare` and `tilewatch report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from tilewatch.flows.cli.compare_profiles import ProfileOptions, compare_two_profiles
from tilewatch.flows.cli.compare_rounds import compare_round_builds, compare_round_paths, show_rounds
from tilewatch.flows.cli.exits import FailOn, told
from tilewatch.flows.cli.exits import fail_on as fail_if
from tilewatch.flows.cli.output import out, show_table, warn
from tilewatch.flows.cli.progress import shown
from tilewatch.flows.steps.profiles import as_path
from tilewatch.flows.steps.sides import refuse_at_once
from tilewatch.infra import prefect_settings
from tilewatch.infra.archive import Archive, open_archive
from tilewatch.infra.settings import load_settings

COLUMNS = (
    "verdict", "experiment", "candidate_arm", "linear", "axis_value", "allocation_regime", "group_shape",
    "base_ns", "candidate_ns", "ratio", "ratio_low", "ratio_high", "q_value", "floor_ratio", "confirmed",
    "verdict_reason", "refused",
)  # fmt: skip

SERVING_COLUMNS = (
    "verdict", "candidate_arm", "load", "metric", "base_value", "candidate_value", "ratio", "ratio_low",
    "ratio_high", "q_value", "floor_ratio", "verdict_reason", "flags",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    app.command()(compare)
    app.command()(report)
    app.command()(reanalyse)


def compare(
    base: Annotated[str, typer.Argument(help="Baseline: build, run, @baseline, or path of a profile.")],
    candidate: Annotated[str, typer.Argument(help="Candidate: build, run, or path of a profile.")],
    version: Annotated[
        int | None, typer.Option(min=1, help="Show this published version instead of comparing.")
    ] = None,
    second_lease: Annotated[
        str | None, typer.Option(metavar="RUN", help="The candidate measured again, to confirm regressions.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option(help="Ignore a difference in this key; recorded on every row.")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Of profiles: compare this rank alone.")] = None,
    fail_on: Annotated[
        list[FailOn] | None,
        typer.Option(
            help="For CI, any number: exit 4 if a point is SLOWER, 5 if an armed one was not compared, 6 if "
            "one is missing. Of profiles: exit 1 if step or a computing group is SLOWER."
        ),
    ] = None,
    linears: Annotated[
        bool, typer.Option("--linears", help="Of a BF16 and a W8A8 profile: for each linear, does INT8 pay?")
    ] = False,
    quantise_list: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --linears: write which should stay BF16.")
    ] = None,
    cores: Annotated[
        bool,
        typer.Option("--cores", help="Of profiles: predicted against observed cores of every kernel row."),
    ] = False,
    soc: Annotated[
        str | None, typer.Option(help="With --cores: the SoC, where the profile does not state its cores.")
    ] = None,
    cann: Annotated[
        str | None, typer.Option(help="With --cores: the CANN release, where the profile does not state it.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of profiles: write the comparison as one HTML file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
) -> None:
    """Compare two builds or two profiles: FASTER, SLOWER, SAME, UNDECIDED or MISSING, and why.

    Builds point by point, published once at comparisons/BASE/CANDIDATE/vN (servers: …/serving/vN); comparing
    the same runs again gives the same version. Paths of profiles (a folder, rank folders, an archive,
    kernel_details.csv, op_summary_*.csv, a profiler database) and of results of a serving client (`vllm bench
    serve`, SGLang, `evalscope perf`) are compared where they lie: nothing is stored. Results that were
    ingested under two builds are judged too; the unit is the round. A name that exists as a path is taken
    for one; `build:NAME` is not.
    """
    paths = as_path(base), as_path(candidate)
    if paths[0] is not None and paths[1] is not None:
        with told():
            if (rounds := compare_round_paths(paths[0], paths[1])) is not None:
                show_rounds(rounds, tuple(fail_on or ()), as_json, as_csv)
                return
            asked = ProfileOptions(
                rank, tuple(override or ()), tuple(fail_on or ()), linears, quantise_list, page, as_json,
                as_csv, cores, soc, cann,
            )  # fmt: skip
            compare_two_profiles(paths[0], paths[1], asked)
        return
    base, candidate = base.removeprefix("build:"), candidate.removeprefix("build:")
    with told():
        settings = load_settings()
        if version is not None:
            with open_archive(settings) as archive:
                _show_version(archive, base, candidate, version, as_json, as_csv)
            return
        with open_archive(settings) as archive:
            ingested = compare_round_builds(archive, base, candidate)
        if ingested is not None:
            show_rounds(ingested, tuple(fail_on or ()), as_json, as_csv)
            return
        with shown(), open_archive(settings) as archive:
            refuse_at_once(archive, base, candidate, override or [])
        prefect_settings.apply(settings.home)
        from tilewatch.flows.compare import compare as compare_flow
        from tilewatch.flows.steps.requests import CompareRequest

        request = CompareRequest(
            baseline=base,
            candidate=candidate,
            second_lease=second_lease,
            overrides=tuple(override or ()),
        )
        prefect_settings.ready()
        with shown():
            done = compare_flow(request)
    if done.serving is not None and (done.serving.only or not (as_json or as_csv)):
        _show_serving(done.serving.rows, base, candidate, as_json, as_csv)
        if not (as_json or as_csv):
            _show_place(done.serving.published.address, done.serving.published.created, done.serving.report)
    if done.serving is not None and done.serving.only:
        return
    _show(done.rows, base, candidate, as_json, as_csv)
    if not (as_json or as_csv):
        _show_place(done.address, done.created, done.report)
    fail_if(done.rows, fail_on or [])


def report(
    run: Annotated[str | None, typer.Argument(help="Run id [default: the newest run].")] = None,
    to: Annotated[
        Path | None, typer.Option(help="Write the page here [default: below the home folder].")
    ] = None,
) -> None:
    """Render the report of an archived run again and print its path."""
    from tilewatch.data_contracts.errors import TilewatchError
    from tilewatch.flows.steps.report import report_archived

    with told():
        settings = load_settings()
        with open_archive(settings) as archive:
            known = sorted(set(archive.tables.scan("runs", columns=["run_id"])["run_id"].to_pylist()))
            if not known or (run is not None and run not in known):
                raise TilewatchError(
                    f"run {run} is not in the archive" if run else "nothing is archived yet",
                    "`tilewatch runs` lists what is; `tilewatch run` measures",
                )
            out.print(str(report_archived(settings, archive, run or known[-1], to)), soft_wrap=True)


def reanalyse(
    runs: Annotated[list[str], typer.Argument(help="Run ids, as `tilewatch runs` lists them.")],
    comparisons: Annotated[
        bool, typer.Option(help="Judge the published comparisons that rest on the runs again.")
    ] = True,
) -> None:
    """Rebuild every table of a run from its raw captures with the present code, its report, its verdicts.

    A comparison whose inputs or rules changed becomes a new version beside the old one. Then say which
    archived runs share a build label although their version files differ.
    """
    from tilewatch.flows.steps.reanalyse import reanalyse_runs
    from tilewatch.flows.steps.requests import ReanalyseRequest
    from tilewatch.flows.steps.runner import Runner

    with told():
        request = ReanalyseRequest(runs=tuple(runs), comparisons=comparisons)
        with shown():
            done = reanalyse_runs(Runner(load_settings()), request)
    for rebuilt in done.runs:
        out.print(f"{rebuilt.run_id}: {rebuilt.sentence}", soft_wrap=True)
        out.print(f"report: {rebuilt.path}", soft_wrap=True)
    if done.changed:
        show_table(pa.Table.from_pylist(list(done.changed)), title="Verdicts that changed")
    out.print(done.sentence)
    for sentence in done.shared_labels:
        warn(sentence)


def _show_place(address: str, created: bool, page: Path) -> None:
    out.print(f"published: {address}{'' if created else ' (was there already)'}")
    out.print(f"report: {page}", soft_wrap=True)


def _show_version(
    archive: Archive, base: str, candidate: str, version: int, as_json: bool, as_csv: bool
) -> None:
    """What is published under this version: operators and servers; as JSON or CSV one table alone."""
    from tilewatch.flows.steps.published import version_of
    from tilewatch.tasks.publish.families import OPERATORS, SERVING

    operators, serving = (version_of(archive, f, base, candidate, version) for f in (OPERATORS, SERVING))
    if serving.num_rows and not (operators.num_rows and (as_json or as_csv)):
        _show_serving(serving, base, candidate, as_json, as_csv)
        if not operators.num_rows:
            return
    _show(operators, base, candidate, as_json, as_csv)


def _show_serving(rows: pa.Table, base: str, candidate: str, as_json: bool, as_csv: bool) -> None:
    """What servers showed, and the sentence about the worst of it."""
    if as_json or as_csv:
        show_table(rows, as_json=as_json, as_csv=as_csv)
        return
    from tilewatch.tasks.publish.serving_report.words import builds_sentence

    show_table(rows.select(list(SERVING_COLUMNS)), title=f"{candidate} against {base}: serving")
    out.print(builds_sentence(rows), soft_wrap=True)


def _show(rows: pa.Table, base: str, candidate: str, as_json: bool, as_csv: bool) -> None:
    if as_json or as_csv:
        show_table(rows, as_json=as_json, as_csv=as_csv)
        return
    if not rows.num_rows:
        out.print(f"no comparison of {candidate} with {base} is published under this version")
        return
    from tilewatch.tasks.publish.run_report.headline import control_of
    from tilewatch.tasks.publish.summary import comparison_summary

    summary = comparison_summary(rows)
    control, counts = control_of(rows)
    (out.print if counts else warn)(control)
    show_table(rows.select(list(COLUMNS)), title=f"{candidate} against {base}")
    out.print(", ".join(f"{number} {verdict}" for verdict, number in summary.counts.items() if number))
    out.print(summary.sentence, soft_wrap=True)
