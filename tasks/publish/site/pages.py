"""The pages about one thing: a run, a build, a comparison, a point, a capture, a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import contract, table_names
from tilewatch.tasks.publish.site.charts import build_history, curve_figures
from tilewatch.tasks.publish.site.listing import Column, Listing, listed
from tilewatch.tasks.publish.site.reading import Asked, NotThereError, Reader

Row = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """One page before it is rendered. ``data`` is what its address gives as JSON and CSV."""

    template: str
    title: str
    question: str
    data: pa.Table
    context: dict[str, Any] = field(default_factory=dict)
    evidence: frozenset[str] = frozenset()


_LATELY = """
SELECT run_id, experiment, build, device_class, evidence, status, control_status, missing_points,
       planned_points, quarantined_rows, started_ns,
       row_number() OVER (PARTITION BY device_class, build, experiment ORDER BY started_ns DESC) AS age
FROM runs
"""
_SLOWER = """
WITH newest AS (SELECT baseline, candidate, max(version) AS version FROM comparisons GROUP BY ALL)
SELECT baseline, candidate, version, experiment, candidate_arm, point_id, linear, axis, axis_value, ratio,
       ratio_low, ratio_high, confirmed, evidence, base_ns, candidate_ns
FROM comparisons JOIN newest USING (baseline, candidate, version)
WHERE verdict = 'SLOWER' ORDER BY confirmed DESC NULLS LAST, ratio DESC, experiment, point_id LIMIT 20
"""
_NEW_CLIFFS = """
WITH newest AS (SELECT experiment, arm, curve, max(run_id) AS run_id FROM cliffs GROUP BY ALL)
SELECT c.* FROM cliffs c JOIN newest USING (experiment, arm, curve, run_id)
WHERE c.class NOT IN ('none', 'unrefined') ORDER BY abs(ln(ratio)) DESC, experiment, arm, before LIMIT 10
"""


def start_page(reader: Reader, asked: Asked) -> Page:
    """What changed lately, worst first: regressions, cliffs, troubled runs, the last of each build."""
    runs = reader.query(
        f"SELECT * FROM ({_LATELY}) WHERE age = 1 ORDER BY started_ns DESC, experiment LIMIT 40"
    )
    slower, cliffs = reader.query(_SLOWER), reader.query(_NEW_CLIFFS)
    troubled = reader.query(
        "SELECT run_id, experiment, build, status, status_reason, control_status, missing_points, "
        "quarantined_rows, started_ns FROM runs WHERE status <> 'complete' OR control_status = 'void' "
        "OR quarantined_rows > 0 ORDER BY started_ns DESC LIMIT 20"
    )
    context = {
        "slower": slower.to_pylist(),
        "cliffs": cliffs.to_pylist(),
        "troubled": troubled.to_pylist(),
        "runs": runs.to_pylist(),
    }
    question = "What changed lately, worst first."
    return Page("start.html.j2", "tilewatch", question, slower, context, _evidence(runs, slower, cliffs))


def run_page(reader: Reader, asked: Asked, run_id: str) -> Page:
    """One run: what was measured, what was proved of each point, what is missing, how to repeat it."""
    head = reader.query("SELECT * FROM runs WHERE run_id = $run ORDER BY experiment", {"run": run_id})
    if not head.num_rows:
        raise NotThereError(f"run {run_id} is not in the archive")
    points = reader.query(
        "SELECT experiment, arm, linear, axis, axis_value, point_id, status, status_reason, weight_format, "
        "dispatched_operator, present_processes, planned_processes, evidence, command FROM points "
        "WHERE run_id = $run ORDER BY experiment, arm, linear, axis_value, point_id",
        {"run": run_id},
    )
    captures = reader.query(
        "SELECT capture_id, experiment, arm, role, kind, process_index, status, failure_reason, sample_count "
        "FROM captures WHERE run_id = $run ORDER BY experiment, kind, arm, role, process_index",
        {"run": run_id},
    )
    context = {"head": head.to_pylist(), "points": points.to_pylist(), "captures": captures.to_pylist()}
    first = head.to_pylist()[0]
    question = f"Measured on {first['device']} of {first['host']}, build {first['build']}."
    return Page("run.html.j2", f"Run {run_id}", question, points, context, _evidence(head))


def build_page(reader: Reader, asked: Asked, build: str) -> Page:
    """One build: what it is made of, what differs from the build before, its runs and comparisons."""
    runs = reader.query("SELECT * FROM runs WHERE build = $build ORDER BY started_ns DESC", {"build": build})
    if not runs.num_rows:
        raise NotThereError(f"build {build} has no run in the archive")
    newest = runs.to_pylist()[0]
    before = reader.query(
        "SELECT build, build_components FROM runs WHERE device_class = $device AND build <> $build "
        "AND started_ns < $first ORDER BY started_ns DESC LIMIT 1",
        {"device": newest["device_class"], "build": build, "first": min(runs["started_ns"].to_pylist())},
    ).to_pylist()
    comparisons = reader.query(
        "SELECT baseline, candidate, version, count(*) FILTER (verdict = 'SLOWER') AS slower, "
        "count(*) FILTER (verdict = 'FASTER') AS faster, count(*) AS points FROM comparisons "
        "WHERE baseline = $build OR candidate = $build GROUP BY ALL "
        "ORDER BY version DESC, baseline, candidate",
        {"build": build},
    )
    context = {
        "components": _changes(before[0] if before else None, newest),
        "before": before[0]["build"] if before else None,
        "runs": runs.to_pylist(),
        "comparisons": comparisons.to_pylist(),
    }
    question = f"Identity {newest['build_id']}, {runs.num_rows} experiments measured."
    return Page("build.html.j2", f"Build {build}", question, runs.drop_columns(["build_components"]), context)


def _changes(before: Row | None, now: Row) -> list[Row]:
    old = dict(before["build_components"]) if before else {}
    new = dict(now["build_components"])
    return [
        {
            "component": name,
            "before": old.get(name),
            "now": new.get(name),
            "changed": bool(old) and old.get(name) != new.get(name),
        }
        for name in sorted({*old, *new})
    ]


VERDICTS = (
    Column("verdict", "Verdict", "verdict"),
    Column("experiment", "Experiment"),
    Column("linear", "Linear"),
    Column("axis_value", "M", "number", "/points/{experiment}/{candidate_arm}/{point_id}"),
    Column("candidate_arm", "Arm"),
    Column("base_ns", "Baseline", "duration"),
    Column("candidate_ns", "Candidate", "duration"),
    Column("ratio", "Ratio", "ratio"),
    Column("ratio_low", "Low", "ratio"),
    Column("ratio_high", "High", "ratio"),
    Column("q_value", "q"),
    Column("floor_ratio", "Floor", "ratio"),
    Column("verdict_reason", "Why"),
    Column("refused", "Refused"),
    Column("evidence", "Evidence", "evidence"),
)


def comparison_listing(baseline: str, candidate: str, version: str) -> Listing:
    """The verdicts of one published comparison as a listing. The names are quoted for SQL."""
    values = {"baseline": baseline, "candidate": candidate, "version": version}
    where = " AND ".join(
        f"CAST({name} AS VARCHAR) = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in values.items()
    )
    rank = "list_position(['SLOWER', 'FASTER', 'MISSING', 'UNDECIDED', 'SAME'], verdict)"
    return Listing(
        f"/comparisons/{baseline}/{candidate}/{version}",
        f"{candidate} against {baseline}",
        f"Version {version}: every point with its interval, worst first.",
        f"SELECT *, {rank} AS rank, abs(ln(ratio)) AS size FROM comparisons WHERE {where}",
        VERDICTS,
        ("verdict", "experiment", "linear", "candidate_arm"),
        "rank, size DESC NULLS LAST, experiment, linear, axis_value, point_id",
        "This comparison is not in the archive; `tilewatch compare BASE CANDIDATE` publishes one.",
    )


def point_page(reader: Reader, asked: Asked, experiment: str, arm: str, point_id: str) -> Page:
    """One point over all builds: its values, events, tiling, captures, and the command that repeats it."""
    wanted = {"experiment": experiment, "arm": arm, "point": point_id}
    where = "experiment = $experiment AND arm = $arm AND point_id = $point"
    points = reader.query(f"SELECT * FROM points WHERE {where} ORDER BY run_id DESC", wanted)
    if not points.num_rows:
        raise NotThereError(f"experiment {experiment}, arm {arm} has no point {point_id}")
    series = reader.query(f"SELECT * FROM series WHERE {where} ORDER BY segment, position", wanted)
    tilings = reader.query(
        "SELECT t.build, t.op_type, t.tiling_key, t.key_source, t.block_dim, t.base_m, t.base_n, t.base_k, "
        "t.stream_k, t.used_core_num, t.workspace_bytes, t.evidence, t.capture_id, t.source_file, "
        "t.source_line "
        f"FROM tilings t WHERE {where} ORDER BY t.run_id DESC, t.tiling_index LIMIT 50",
        wanted,
    )
    captures = reader.query(
        "SELECT DISTINCT c.capture_id, c.build, c.run_id, c.kind, c.role, c.process_index, c.status "
        "FROM captures c "
        "JOIN points p ON p.run_id = c.run_id AND p.experiment = c.experiment AND p.arm = c.arm "
        "WHERE p.experiment = $experiment AND p.arm = $arm AND p.point_id = $point "
        "ORDER BY c.run_id DESC, c.kind, c.role, c.process_index LIMIT 60",
        wanted,
    )
    first = points.to_pylist()[0]
    context = {
        "point": first,
        "points": points.to_pylist(),
        "series": series.to_pylist(),
        "tilings": tilings.to_pylist(),
        "captures": captures.to_pylist(),
        "figures": build_history(series.to_pylist()),
    }
    shape = f"{first['linear'] or first['operator']} {first['axis']} {first['axis_value']}"
    title = f"{experiment}: {shape}, arm {arm}"
    return Page("point.html.j2", title, "One point over all builds.", series, context, _evidence(points))


def curves_page(reader: Reader, asked: Asked, run_id: str, experiment: str) -> Page:
    """Latency along the axis for one experiment of one run, cliffs marked with class and cause."""
    wanted = {"run": run_id, "experiment": experiment}
    tables = {
        name: reader.query(f"SELECT * FROM {name} WHERE run_id = $run AND experiment = $experiment", wanted)
        for name in ("runs", "captures", "points", "samples", "alignments", "cliffs")
    }
    if not tables["runs"].num_rows:
        raise NotThereError(f"run {run_id} has no experiment {experiment}")
    figures, data = curve_figures(tables)
    title = f"Curves of {experiment} in run {run_id}"
    question = "Medians over processes; bars are the smallest and largest process; both axes logarithmic."
    context = {"figures": figures, "cliffs": tables["cliffs"].to_pylist(), "run_id": run_id}
    return Page("curves.html.j2", title, question, data, context, _evidence(tables["runs"]))


def capture_page(reader: Reader, asked: Asked, capture_id: str) -> Page:
    """One capture: what it is, and its raw files to download."""
    found = reader.query("SELECT * FROM captures WHERE capture_id = $id", {"id": capture_id})
    if not found.num_rows:
        raise NotThereError(f"capture {capture_id} is not in the archive")
    refused = reader.query(
        "SELECT rule, field, value, reason, source_file, source_line FROM quarantine WHERE capture_id = $id "
        "ORDER BY source_file, source_line LIMIT 200",
        {"id": capture_id},
    )
    context = {"capture": found.to_pylist()[0], "refused": refused.to_pylist()}
    question = "Everything one process left behind, unchanged."
    data = found.drop_columns(["environment"])
    return Page("capture.html.j2", f"Capture {capture_id}", question, data, context, _evidence(found))


def data_page(reader: Reader, asked: Asked) -> Page:
    """Every table with its rows and what it is for."""
    rows = [
        {
            "table": name,
            "rows": count,
            "version": contract(name).version,
            "purpose": contract(name).purpose,
        }
        for name, count in reader.counts().items()
    ]
    data = pa.Table.from_pylist(rows)
    return Page("data.html.j2", "Data", "Every table, its rows, and what it is for.", data, {"rows": rows})


def contract_page(reader: Reader, asked: Asked, table: str) -> Page:
    """One table: its columns with type, unit and meaning, and its first rows."""
    if table not in table_names():
        raise NotThereError(f"there is no table {table}")
    spec = contract(table)
    columns = [
        {"column": c.name, "type": c.physical_type, "unit": c.unit, "key": c.key, "meaning": c.description}
        for c in spec.columns
    ]
    title, data = f"Table {table}", pa.Table.from_pylist(columns)
    return Page("contract.html.j2", title, spec.purpose, data, {"columns": columns, "spec": spec})


def listing_page(reader: Reader, asked: Asked, listing: Listing) -> Page:
    """A listing as a page."""
    found = listed(listing, reader, asked)
    evidence = frozenset(str(row["evidence"]) for row in found.rows if row.get("evidence"))
    context = {"listed": found}
    return Page("listing.html.j2", listing.title, listing.question, pa.table({}), context, evidence)


def _evidence(*tables: pa.Table) -> frozenset[str]:
    found = (t["evidence"].to_pylist() for t in tables if "evidence" in t.column_names)
    return frozenset(str(value) for values in found for value in values if value)
