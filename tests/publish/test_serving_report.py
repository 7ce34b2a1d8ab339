"""The page of experiment E says first whether W8A8 paid off; verdicts, gates, proof and failures follow."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.publish.serving_page import content
from tilewatch.tasks.publish.serving_report.charts import ORDER
from tilewatch.tasks.publish.serving_report.report import serving_report
from tilewatch.tasks.publish.serving_report.words import banners, verdict_sentence
from tilewatch.tasks.read.kernels.kernel_categories import category_rules


@pytest.fixture(scope="module")
def run():
    return content()


@pytest.fixture(scope="module")
def page(run) -> str:
    return serving_report(run)


def changed(table: pa.Table, **columns: object) -> pa.Table:
    for name, value in columns.items():
        field = table.schema.field(name)
        column = pa.array([value] * table.num_rows, field.type)
        table = table.set_column(table.column_names.index(name), field, column)
    return table


def test_the_first_sentence_says_whether_w8a8_paid_off_by_how_much_where_and_why(run, page) -> None:
    sentence = verdict_sentence(run)
    assert sentence == (
        "W8A8 (w8a8_nz) did not pay off here: TPOT ×1.20 against bf16 (10.0 ms → 12.0 ms, interval ×1.20 to "
        "×1.20), output throughput ×0.83, measured on Invented CPU, 2 cores; a profiled decode step went "
        "12.0 ms → 14.0 ms, most of it in quant +4.00 ms, dense −1.00 ms, expert −1.00 ms."
    )
    assert page.index(sentence) < page.index('banner">')


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"verdict": "FASTER"}, "W8A8 (w8a8_nz) paid off here: TPOT"),
        ({"verdict": "SAME"}, "W8A8 (w8a8_nz) made no difference here beyond the floor of ×1.008: TPOT"),
        (
            {"verdict": "UNDECIDED"},
            "Whether W8A8 (w8a8_nz) paid off here is not decided by 5 launches an arm: TPOT",
        ),
        (
            {"verdict": "UNDECIDED", "refused": "x", "ratio": None, "verdict_reason": "refused: model"},
            "Whether W8A8 (w8a8_nz) paid off cannot be said: refused: model, measured on",
        ),
        (
            {"verdict": "MISSING", "ratio": None, "verdict_reason": "no value in the baseline"},
            "Whether W8A8 (w8a8_nz) paid off cannot be said: no value in the baseline, measured on",
        ),
    ],
)  # fmt: skip
def test_every_verdict_has_its_sentence(run, columns, said) -> None:
    assert verdict_sentence(replace(run, comparisons=changed(run.comparisons, **columns))).startswith(said)


def test_without_a_profile_or_a_pair_the_sentence_says_so(run) -> None:
    bare = replace(run, savings=run.savings.slice(0, 0))
    assert verdict_sentence(bare).endswith("not known: no decode step was profiled in both arms.")
    lonely = replace(run, comparisons=run.comparisons.slice(0, 0))
    assert verdict_sentence(lonely).startswith(
        "W8A8 was not compared with BF16: w8a8_nz and bf16 were not both"
    )


def test_what_a_reader_must_know_stands_in_banners(run) -> None:
    assert [text.split(".")[0] for text in banners(run)] == [
        "Reference server on a CPU", "Run run-e: incomplete (1 of 16 launches did not complete)",
    ]  # fmt: skip
    simulated = replace(run, launches=changed(run.launches, evidence="simulated", agent="npu"))
    assert banners(simulated)[0].startswith("SIMULATED")
    assert "SIMULATED: Run run-e" in serving_report(simulated)


def test_gates_differ_in_shape_and_say_their_margin(page) -> None:
    assert page.count("✕</td>") == 3 and page.count("○</td>") == 3 and page.count("●</td>") == 0
    assert "failed: 5 of 5 launches missed the bar; 0 may" in page and "-7.1 %" in page
    assert "not armed: no limit is stated for output_token_per_s" in page


def test_proof_failures_and_forced_differences_are_on_the_page(page) -> None:
    assert "w8a8_nz as asked for" in page and ">4004</td>" in page
    assert "failed at ready: not ready after 30 s" in page and "loading\nkilled" in page
    assert "w8a8_nd: the format variable flips all linears and the experts at once" in page
    assert "launches_failed: 1" in page


def test_the_same_content_gives_the_same_page(run, page) -> None:
    assert serving_report(run) == page


def test_every_category_has_its_place_in_the_bars() -> None:
    assert {*category_rules().names, "idle"} == set(ORDER)


def test_a_run_in_which_nothing_was_measured_still_gives_a_page(run) -> None:
    lost = run.launches.filter(pa.compute.equal(run.launches["status"], "failed"))
    empty = replace(
        run, launches=lost, **{
            name: getattr(run, name).slice(0, 0)
            for name in ("requests", "serving_metrics", "phase_costs", "comparisons", "gates", "savings")
        },
    )  # fmt: skip
    page = serving_report(empty)
    assert (
        "nothing to compare" in page
        and "The preset states no gate." in page
        and "No launch was profiled" in page
    )
