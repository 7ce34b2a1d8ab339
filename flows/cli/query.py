"""Reading verbs: `query`, `runs`, `series`, `show`, `validate`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.data_contracts.serving_tables import SERVING_TABLES
from tilewatch.flows.cli.exits import FAILED, told
from tilewatch.flows.cli.output import complain, out, show_rows, show_table, warn
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import load_settings
from tilewatch.tasks.builds.packages import mixes

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: a list of objects.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")]
RUN_COLUMNS = (
    "run_id", "experiment", "build", "preset", "agent", "evidence", "status", "planned_points",
    "missing_points", "sample_count", "quarantined_rows", "control_status",
)  # fmt: skip
POINT_COLUMNS = (
    "experiment", "arm", "linear", "axis", "axis_value", "allocation_regime", "group_shape", "point_id",
    "status", "status_reason", "weight_format", "dispatched_operator", "present_processes", "command",
)  # fmt: skip
SERIES_COLUMNS = (
    "event", "experiment", "arm", "linear", "axis_value", "allocation_regime", "group_shape", "build",
    "run_id", "position", "segment", "value_ns", "reference_ns", "ratio", "fence_ratio", "fence_reason",
)  # fmt: skip

LAUNCH_COLUMNS = (
    "experiment", "block", "arm", "role", "process_index", "status", "failure_stage", "failure_reason",
    "server_pid", "ready_after_ns", "weight_format", "proof", "repeats", "started_ns", "server_command",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    app.command()(query)
    app.command()(runs)
    app.command()(series)
    app.command()(show)
    app.command()(validate)


def query(
    sql: Annotated[str, typer.Argument(help='One statement that reads, e.g. "SELECT * FROM runs".')],
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Ask the tables with SQL (DuckDB). `tilewatch query "SHOW TABLES"` lists them.

    Example: `tilewatch query "SELECT linear, m, median(duration_ns) FROM samples JOIN points USING (run_id,
    experiment, arm, point_id) GROUP BY ALL"`
    """
    with told(), open_archive(load_settings()) as archive:
        show_table(archive.tables.query(sql), as_json=as_json, as_csv=as_csv)


def runs(as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """List archived runs, newest first, one line an experiment."""
    with told(), open_archive(load_settings()) as archive:
        found = archive.tables.scan("runs", columns=RUN_COLUMNS)
        found = found.sort_by([("run_id", "descending"), ("experiment", "ascending")])
        show_table(found, title="Runs", as_json=as_json, as_csv=as_csv)


def series(
    experiment: Annotated[str, typer.Option(help="Only this experiment, by name: quant_matmul …")] = "",
    linear: Annotated[str, typer.Option(help="Only this linear.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Also builds at which nothing happened.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List what happened over the archived builds: steps, values outside the fence, spikes, new environments.

    A run is added to the series of its points when it is stored; a changed device setting, host or method
    starts a new segment. Fence and step are explained by fence_reason and by the means on both sides.
    """
    from tilewatch.flows.steps.series import events, follow

    with told(), open_archive(load_settings()) as archive:
        follow(archive.tables)
        found = events(archive.tables, every=every, experiment=experiment, linear=linear)
        shown = found if as_json or as_csv else found.select(SERIES_COLUMNS)
        show_table(shown, title="Series over builds", as_json=as_json, as_csv=as_csv)
        if not (as_json or as_csv):
            runs = archive.tables.scan("series", columns=["run_id", "point_id"])
            count = pc.count_distinct(runs["run_id"]).as_py()
            out.print(f"{runs.num_rows} values of {count} runs")


def show(
    run: Annotated[str, typer.Argument(help="Run id, as `tilewatch runs` lists it.")],
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show one run: its points with what was proved of each, what is missing and why, how to repeat it.

    Of experiment E it shows every launch of a server: what proved its arm, or where and why it failed.
    """
    with told(), open_archive(load_settings()) as archive:
        head = archive.tables.scan("runs", [("run_id", "==", run)])
        if not head.num_rows:
            raise TilewatchError(f"run {run} is not in the archive", "`tilewatch runs` lists what is")
        points = archive.tables.scan("points", [("run_id", "==", run)], POINT_COLUMNS)
        points = points.sort_by([(name, "ascending") for name in POINT_COLUMNS[:5]])
        launches = archive.tables.scan("launches", [("run_id", "==", run)], LAUNCH_COLUMNS)
        launches = launches.sort_by([(name, "ascending") for name in ("experiment", "block", "started_ns")])
        serving_alone = bool(launches.num_rows and not points.num_rows)
        if as_json or as_csv:
            show_table(launches if serving_alone else points, as_json=as_json, as_csv=as_csv)
            return
        _show_head(head)
        if not serving_alone:
            show_table(points.drop_columns(["command"]), title="Points")
        if launches.num_rows:
            show_table(launches.drop_columns(["started_ns", "server_command"]), title="Launches")


def validate(
    run: Annotated[str, typer.Argument(help="Run id, as `tilewatch runs` lists it.")],
    as_json: AsJson = False,
) -> None:
    """Check the stored tables of one run against their contracts again; exit 1 where a rule fails."""
    from tilewatch.data_contracts import table_names
    from tilewatch.tasks.validate.run import validate_tables

    with told(), open_archive(load_settings()) as archive:
        names = [t for t in table_names() if t in ("runs", "captures", "points", "samples", "alignments")]
        names += ["kernels", "cliffs", "ledger", "exposed_times", "series"]
        tables = {t: archive.tables.scan(t, [("run_id", "==", run)]) for t in names}
        serving = {t: archive.tables.scan(t, [("run_id", "==", run)]) for t in SERVING_TABLES}
        tables |= serving if serving["launches"].num_rows else {}
        if not tables["runs"].num_rows:
            raise TilewatchError(f"run {run} is not in the archive", "`tilewatch runs` lists what is")
        with tempfile.TemporaryDirectory() as work:
            checks = validate_tables(tables, Path(work)).checks
        failed = checks.filter(pc.invert(checks["success"]))
        columns = ["table", "rule", "severity", "success", "row_count", "failed_count", "detail"]
        if as_json:
            show_table(checks.select(columns), as_json=True)
        else:
            rows = sum(t.num_rows for t in tables.values())
            out.print(f"{checks.num_rows} rules over {rows} rows of {len(tables)} tables")
            if failed.num_rows:
                show_table(failed.select(columns), title="Rules that fail")
        if failed.num_rows:
            complain(f"{failed.num_rows} rules fail for run {run}")
            raise typer.Exit(FAILED)


def _show_head(head: pa.Table) -> None:
    first = head.to_pylist()[0]
    shown = ("build", "build_id", "device", "host", "agent", "evidence", "preset", "seed", "lease_id")
    show_rows(("of the run", "value"), [(k, first[k]) for k in shown], title=f"Run {first['run_id']}")
    show_rows(("component", "version"), sorted(first["build_components"]), title="Build")
    for sentence in mixes(dict(first["build_components"])):
        warn(sentence)
    columns = ["experiment", "status", "status_reason", "planned_points", "missing_points", "command"]
    show_table(head.select(columns), title="Experiments")
