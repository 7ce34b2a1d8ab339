"""The report says what matters first, shows everything it was given and needs nothing from outside."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from plotly.offline import get_plotlyjs

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.refinement import refinement_commands
from tilewatch.tasks.publish.run_report.report import render_report


def page(content: ReportContent) -> str:
    """The report without the chart library, which is not ours to judge."""
    return render_report(content).replace(get_plotlyjs(), "")


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def replaced(table: pa.Table, **columns) -> pa.Table:
    for name, value in columns.items():
        position = table.column_names.index(name)
        values = pa.array([value] * table.num_rows, table.schema.field(name).type)
        table = table.set_column(position, table.schema.field(name), values)
    return table


@pytest.fixture(scope="module")
def full(two_simulated_builds, comparison, cliffs, ledger):
    return ReportContent(
        **two_simulated_builds,
        comparisons=comparison,
        cliffs=cliffs,
        ledger=ledger,
        title="cann-8.3 against cann-8.2",
        command="tilewatch compare cann-8.2 cann-8.3",
        links={"validation": "validation.html"},
        software={"tilewatch": "0.1.0"},
    )


@pytest.fixture(scope="module")
def full_page(full):
    return page(full)


@pytest.fixture(scope="module")
def cpu_page(cpu_sweep):
    return page(ReportContent(**cpu_sweep))


def test_a_single_sweep_is_enough_and_leads_with_what_was_measured(cpu_page):
    (lead,) = re.findall(r'<p class="lead">(.*?)</p>', cpu_page, re.S)
    assert lead.startswith("Measured dynamic_quant") and "122 points in 27 processes" in lead
    assert not re.search(r'<h2 id="(comparison|cliffs|ledger)"', cpu_page)


def test_the_cpu_agent_has_its_banner_and_nothing_says_simulated(cpu_page):
    assert "real numbers of this CPU that tell nothing about an NPU" in words(cpu_page)
    assert "SIMULATED" not in cpu_page


def test_every_section_of_a_simulated_report_says_so(full_page):
    headings = re.findall(r"<h[12].*?</h[12]>", full_page, re.S)
    assert len(headings) == 10
    assert all("SIMULATED" in heading for heading in headings)


def test_a_comparison_says_first_what_was_compared_and_then_its_worst_row(full_page):
    (lead,) = re.findall(r'<p class="lead">(.*?)</p>', full_page, re.S)
    assert lead.startswith("Not comparable: 114 points armed, 113 compared, 0 refused, 1 missing")
    assert ". quant_matmul wq_a M 64, arm standalone is SLOWER: ×1.20" in lead
    assert "changed component cann: 8.2 -&gt; 8.3" in lead


def test_an_observed_tiling_change_is_named_as_the_cause(full):
    tilings = full.alignments.to_pylist()
    changed = [
        {**row, "status": "aligned", "base_m": 64 if row["build"] == "cann-8.3" else 128}
        if (row["point_id"], row["arm"]) == ("quant_matmul-wq_a-64", "standalone")
        else row
        for row in tilings
    ]
    content = ReportContent(
        runs=full.runs,
        captures=full.captures,
        points=full.points,
        samples=full.samples,
        alignments=pa.Table.from_pylist(changed, schema=full.alignments.schema),
        comparisons=full.comparisons,
    )
    assert "cause: tiling changed, base_m 128 → 64" in words(page(content))


@pytest.mark.parametrize(
    ("status", "words_expected"),
    [("ok", "Control: ok."), ("insufficient", "under 20 pairs"), ("void", "no verdict counts")],
)
def test_the_control_line_says_whether_verdicts_count(full, status, words_expected):
    content = ReportContent(
        runs=full.runs,
        captures=full.captures,
        points=full.points,
        samples=full.samples,
        comparisons=replaced(full.comparisons, control_status=status),
    )
    assert words_expected in words(page(content))


def test_the_comparison_is_worst_first_and_can_be_filtered_by_verdict(full_page):
    order = re.findall(r'<tr data-verdict="(\w+)"', full_page)
    assert order[:4] == ["SLOWER", "FASTER", "MISSING", "UNDECIDED"] and set(order[4:]) == {"SAME"}
    assert re.findall(r'<button type="button" value="([^"]*)"', full_page) == [
        "!SAME",
        "",
        "SLOWER",
        "FASTER",
        "MISSING",
        "UNDECIDED",
        "SAME",
    ]


def test_cliffs_are_told_with_their_sentence(full_page):
    assert "M_e 128→129: ×1.79; base_m 128→256" in words(full_page)


def test_the_ledger_shows_intervals_and_says_why_a_part_is_unknown(full_page):
    assert "unknown: fused producer not measured" in full_page
    assert 'data-chart="chart-ledger"' in full_page


def test_each_curve_with_a_time_has_a_chart(full_page, cpu_page):
    assert len(re.findall(r'data-chart="chart-\d+"', cpu_page)) == 2 + 3 + 1 + 1
    assert "Bands: observed tiling of cann-8.3 int8." in full_page


def test_missing_points_are_listed_with_their_reason(cpu_page):
    text = words(cpu_page)
    assert "wkv M 128 bf16 cpu-torch2.13.0 missing 0 of 3 process killed at its time limit" in text
    assert "wq_a M 1, 4, 16, 64 tuple_input cpu-torch2.13.0 present 3 of 3 tuple_input" in text


def test_the_command_of_every_point_is_there(cpu_page, cpu_sweep):
    for command in cpu_sweep["points"]["command"].to_pylist():
        assert f"<code>{command}</code>" in cpu_page


def test_builds_and_environment_are_there(full_page):
    text = words(full_page)
    assert "Build cann-8.2 (id-cann-8.2)" in text and "cpu_governor performance" in text
    assert "60.0 s (75%)" in text


def test_the_validation_page_and_the_own_command_are_linked(full_page):
    assert '<a href="validation.html">Validation</a>' in full_page
    assert "<code>tilewatch compare cann-8.2 cann-8.3</code>" in full_page


def test_refused_rows_and_failed_rules_are_counted(cpu_sweep):
    quarantine = from_rows(
        "quarantine",
        [
            {
                "quarantine_id": str(number),
                "build": "b",
                "stage": "read",
                "table": "samples",
                "rule": "Durations are positive",
                "reason": "r",
            }
            for number in range(1200)
        ],
    )
    check = {
        "build": "b",
        "table": "runs",
        "rule": "planned = present + MISSING",
        "expectation": "e",
        "severity": "error",
        "row_count": 1,
        "failed_count": 0,
    }
    checks = from_rows(
        "checks",
        [
            {**check, "check_id": "1", "success": False, "detail": "no such column"},
            {**check, "check_id": "2", "success": True},
        ],
    )
    text = words(page(ReportContent(**cpu_sweep, quarantine=quarantine, checks=checks)))
    assert "samples Durations are positive 1,200" in text
    assert "planned = present + MISSING: no such column error, 0 rows" in text
    assert "2 checks ran, 1 failed." in text


def test_a_run_that_is_not_complete_has_a_banner(cpu_sweep):
    runs = replaced(cpu_sweep["runs"], status="incomplete", status_reason="stopped by ctrl-C")
    assert "incomplete (stopped by ctrl-C)" in page(ReportContent(**{**cpu_sweep, "runs": runs}))


def test_labels_are_escaped_everywhere(cpu_sweep):
    evil = "</script><script>alert(1)</script>"
    columns = {"build": evil}
    tables = {name: replaced(table, **columns) for name, table in cpu_sweep.items()}
    tables["points"] = replaced(tables["points"], arm=evil, linear=evil, command=evil, status_reason=evil)
    tables["samples"] = replaced(tables["samples"], arm=evil)
    text = page(ReportContent(**tables, title=evil, command=evil, software={evil: evil}, links={evil: evil}))
    assert "<script>alert" not in text and "</script><script>" not in text


def test_the_page_needs_nothing_from_outside(full_page):
    addresses = re.findall(r'(?:src|href)="([^"]*)"', full_page)
    assert {a for a in addresses if not a.startswith("#")} == {"data:,", "validation.html"}
    assert "http" not in full_page and "@import" not in full_page and "url(" not in full_page


def test_the_library_is_inlined_once(full):
    assert render_report(full).count(get_plotlyjs()) == 1


def test_the_same_content_gives_the_same_bytes_in_any_row_order(full, full_page):
    assert page(full) == full_page
    backwards = {
        name: getattr(full, name).take(list(range(getattr(full, name).num_rows))[::-1])
        for name in ("points", "samples", "comparisons", "cliffs", "ledger")
    }
    shuffled = ReportContent(**{**vars(full), **backwards})
    assert page(shuffled) == full_page


def test_evidence_is_never_mixed(cpu_sweep, two_simulated_builds):
    runs = pa.concat_tables([cpu_sweep["runs"], two_simulated_builds["runs"]])
    with pytest.raises(AnalysisError, match="measured and simulated"):
        ReportContent(**{**cpu_sweep, "runs": runs})


def test_the_page_has_the_command_that_measures_what_cliffs_lack(full):
    def cliff(before, after, measure_next):
        run = full.runs.slice(0, 1).to_pylist()[0]
        same = {name: run[name] for name in ("run_id", "experiment", "build")}
        return {**same, "before": before, "after": after, "measure_next": measure_next, "class": "unrefined"}

    asked = pa.Table.from_pylist([cliff(32, 64, [33, 48, 63]), cliff(64, 128, [65, 80]), cliff(8, 9, [])])
    run = full.runs.slice(0, 1).to_pylist()[0]
    assert refinement_commands(asked, full.runs) == [
        f"tilewatch run {run['experiment']} --axis 32,33,48,63,64,65,80,128 "
        f"--preset {run['preset']} --agent {run['agent']} --build {run['build']}"
    ]
