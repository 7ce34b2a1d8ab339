"""From one command to archived, validated, queryable measurements of this machine."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.flows.conftest import Home
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import Settings


def test_every_number_is_measured_on_this_cpu_and_every_point_is_there(archived: Home) -> None:
    runs = archived.rows("SELECT * FROM runs ORDER BY build")
    assert [r["build"] for r in runs] == ["base", "new"]
    for run in runs:
        assert (run["status"], run["evidence"], run["agent"]) == ("complete", "measured", "cpu")
        assert run["planned_points"] == run["accounted_points"] == 6 and run["missing_points"] == 0
        assert run["planned_processes"] == run["accounted_processes"] == 6
        assert run["control_status"] == "insufficient"
    counted = archived.rows("SELECT evidence, count(*) AS n FROM samples GROUP BY ALL")
    assert [c["evidence"] for c in counted] == ["measured"] and counted[0]["n"] > 100


def test_a_standalone_dynamic_quant_is_timed_and_tuple_input_is_proved_to_have_none(archived: Home) -> None:
    rows = archived.rows("""
        SELECT arm, min(dynamic_quant_kernel_count) AS fewest, max(dynamic_quant_kernel_count) AS most,
               max(expected_kernel_count) AS calls, count(*) AS points
        FROM alignments WHERE build = 'base' GROUP BY arm ORDER BY arm""")
    standalone, tuple_input = rows
    assert standalone["fewest"] == standalone["most"] == standalone["calls"] == 10
    assert tuple_input == {"arm": "tuple_input", "fewest": 0, "most": 0, "calls": 10, "points": 3}
    nulls = archived.rows("SELECT DISTINCT duration_ns, null_reason FROM samples WHERE arm = 'tuple_input'")
    assert nulls == [{"duration_ns": None, "null_reason": "tuple_input"}]


def test_every_derived_row_leads_to_raw_bytes_in_the_store(archived: Home) -> None:
    row = archived.rows("""
        SELECT raw_prefix, source_file, source_line, duration_ns, calls, sample
        FROM samples JOIN captures USING (capture_id) WHERE duration_ns IS NOT NULL LIMIT 1""")[0]
    with open_archive(Settings(home=archived.path)) as archive:
        lines = archive.objects.get(f"{row['raw_prefix']}/{row['source_file']}").splitlines()
    raw = httpx.Response(200, content=lines[row["source_line"] - 1]).json()
    assert raw["sample"] == row["sample"] and raw["calls"] == row["calls"]


def test_validation_ran_over_every_table_and_nothing_failed(archived: Home) -> None:
    rows = archived.rows("""
        SELECT "table", count(*) AS rules, sum(failed_count) AS failed FROM checks GROUP BY ALL""")
    by_table = {r["table"]: r for r in rows}
    assert {"runs", "captures", "points", "samples", "kernels", "alignments"} <= set(by_table)
    assert all(r["failed"] == 0 and r["rules"] > 3 for r in rows)
    assert archived.rows("SELECT * FROM quarantine") == []


def test_run_prints_a_summary_and_the_path_of_its_report(archived: Home) -> None:
    said = archived.run("report")
    report = Path(said.strip())
    assert report.name == "report.html" and report.stat().st_size > 1_000_000
    text = report.read_text()
    assert "CPU reference kernels" in text and "tilewatch run A --preset smoke" in text


def test_runs_show_and_validate_read_the_archive(archived: Home) -> None:
    run = archived.rows("SELECT run_id FROM runs WHERE build = 'base'")[0]["run_id"]
    assert run in archived.run("runs", "--json")
    shown = archived.run("show", run, "--csv").splitlines()
    assert len(shown) == 7 and "weight_format" in shown[0]
    assert "rules over" in archived.run("validate", run)


def test_the_comparison_is_published_once_and_can_be_read_again(archived: Home) -> None:
    first = archived.run("compare", "base", "new")
    assert "comparisons/base/new/v1" in first and "UNDECIDED" in first
    assert "was there already" in archived.run("compare", "base", "new")
    rows = archived.rows("SELECT * FROM comparisons")
    assert len(rows) == 6 and {r["version"] for r in rows} == {1}
    verdicts = [(r["candidate_arm"], r["verdict"]) for r in rows]
    assert set(verdicts) == {("standalone", "UNDECIDED"), ("tuple_input", "NOT_APPLICABLE")}
    assert "Not comparable: 3 points armed, 0 compared, 0 refused, 0 missing, 3 not judged" in first
    again = archived.run("compare", "base", "new", "--version", "1", "--csv").splitlines()
    assert len(again) == 7


def test_the_run_is_on_the_prefect_server_with_its_artifacts(archived: Home, prefect_server: str) -> None:
    body = {"flows": {"name": {"any_": ["sweep"]}}}
    runs = httpx.post(f"{prefect_server}/flow_runs/filter", json=body).json()
    completed = [r["name"] for r in runs if r["state_type"] == "COMPLETED"]
    assert completed.count("sweep A smoke") >= 2, "one for each build; other tests kill theirs"
    artifacts = httpx.post(f"{prefect_server}/artifacts/filter", json={}).json()
    assert {"sweep", "sweep-report"} <= {a["key"] for a in artifacts}


def test_a_label_stands_for_one_build(archived: Home) -> None:
    from tilewatch.flows.steps.prepare import BuildLabelError, _refuse_taken_label

    with open_archive(Settings(home=archived.path)) as archive:
        with pytest.raises(BuildLabelError, match="label base names build"):
            _refuse_taken_label(archive, "base", "0" * 16)
        _refuse_taken_label(archive, "unused", "0" * 16)


def test_rebuilding_from_raw_gives_the_same_rows_column_by_column(archived: Home) -> None:
    run = archived.rows("SELECT run_id FROM runs WHERE build = 'new'")[0]["run_id"]
    tables = ("runs", "captures", "points", "samples", "kernels", "alignments", "ledger", "checks")
    settings = Settings(home=archived.path)

    def rows() -> dict[str, list[str]]:
        of_run = [("run_id", "==", run)]
        with open_archive(settings) as archive:
            return {t: sorted(map(str, archive.tables.scan(t, of_run).to_pylist())) for t in tables}

    before = rows()
    (first,) = archived.rows(f"SELECT capture_id FROM captures WHERE run_id = '{run}' LIMIT 1")
    capture = first["capture_id"]
    with open_archive(settings) as archive:
        for table in ("captures", "samples", "kernels"):
            assert archive.tables.delete(table, capture_id=capture) > 0
    assert rows() != before
    archived.run("reanalyse", run)
    after = rows()
    for table in tables:
        assert after[table] == before[table], table


def test_the_query_in_readme_gives_the_columns_that_readme_shows(archived: Home) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = readme[readme.index("<!-- query -->") : readme.index("<!-- /query -->")]
    (sql,) = re.findall(r'tilewatch query "(.+?)"', block, re.DOTALL)
    header = archived.run("query", sql.replace("\n", " "), "--csv").splitlines()[0]
    shown = re.search(r"^┃ (.+) ┃$", block, re.MULTILINE)
    assert shown is not None
    assert [name.strip('"') for name in header.split(",")] == [n.strip() for n in shown[1].split("┃")]
