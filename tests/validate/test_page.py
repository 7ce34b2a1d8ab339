"""The validation page is one file that says what failed and shows examples."""

from __future__ import annotations

import re

from tests.validate.conftest import breakable
from tilewatch.data_contracts import table_names
from tilewatch.tasks.validate.page import render_page


def results(**rule):
    found = {
        "rule": "Durations are positive",
        "requirement": "column values to be between (min_value 1)",
        "fields": ["duration_ns"],
        "severity": "error",
        "success": True,
        "row_count": 9,
        "failed_count": 0,
        "detail": None,
        "examples": [],
        **rule,
    }
    return {"tables": [{"name": "samples", "rows": 9, "kept": 9, "refused": 0, "rules": [found]}]}


FAILED = {
    "success": False,
    "failed_count": 8,
    "examples": [
        {"row": 3, "place": "samples.jsonl 3", "values": {"duration_ns": "<script>alert(1)</script>"}}
    ],
}


def test_a_page_without_failures_says_so_first():
    text = render_page(results(), title="Validation")
    assert "All 1 rules hold" in text and "FAILED" not in text


def test_a_failure_is_shown_with_its_rows_and_values_and_opens_its_table():
    text = render_page(results(**FAILED), title="Validation")
    assert "1 of 1 rules failed" in text and "<details open>" in text
    assert "row 3" in text and "samples.jsonl 3" in text and "and 7 more" in text


def test_values_are_escaped():
    text = render_page(results(**FAILED), title="<script>")
    assert "<script>" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_page_needs_nothing_from_outside_and_links_back_to_the_report():
    text = render_page(results(), title="Validation", report_href="report.html")
    assert re.findall(r'(?:src|href)="([^"]*)"', text) == ["data:,", "report.html"]
    assert "url(" not in text and "@import" not in text


def test_every_rule_of_a_real_validation_is_on_the_page(every_rule_broken):
    text = render_page(every_rule_broken.validated.results, title="Validation")
    rules = [r for t in every_rule_broken.validated.results["tables"] for r in t["rules"]]
    broken = sum(len(breakable(table)) for table in table_names())
    assert text.count(">FAILED<") == broken and 0 <= len(rules) - broken <= 1
