"""Report and validation page in a real browser, opened from a file, with no network to fall back on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.publish.serving_page import content
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.report import render_report
from tilewatch.tasks.publish.serving_report.report import serving_report
from tilewatch.tasks.validate.page import render_page

pytestmark = pytest.mark.browser

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Watched:
    """A page with everything it asked for and complained about."""

    def __init__(self, page):
        self.page, self.requests, self.complaints = page, [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path):
        self.page.goto(path.as_uri())
        self.page.wait_for_load_state("networkidle")
        return self.page


@pytest.fixture(scope="module")
def browser():
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("needs Debian's chromium: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def watched(browser) -> Iterator[Watched]:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    yield Watched(page)
    page.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory, two_simulated_builds, comparison, cliffs, ledger):
    content = ReportContent(**two_simulated_builds, comparisons=comparison, cliffs=cliffs, ledger=ledger)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report(content), encoding="utf-8")
    return path


def test_the_report_draws_all_its_charts_without_an_error_or_a_request(watched, report):
    page = watched.open(report)
    charts = page.locator(".chart")
    assert charts.count() == 8
    for number in range(7):
        assert charts.nth(number).locator(".scatterlayer .trace").count() >= 2
        assert charts.nth(number).locator(".points path").first.is_visible()
    assert page.locator("#chart-ledger .barlayer .point").count() == 12
    assert watched.complaints == []
    assert watched.requests == [report.as_uri()]


def test_the_points_of_a_chart_are_as_many_as_were_timed(watched, report):
    page = watched.open(report)
    figure = page.locator("figure", has_text="wkv K4096 N512")
    assert figure.locator(".scatterlayer .points path").count() == 2 * (8 + 8 + 7)


def test_no_legend_covers_a_plot(watched, report):
    page = watched.open(report)
    for chart in page.locator(".chart").all():
        plot, legend = chart.locator(".nsewdrag").bounding_box(), chart.locator(".legend").bounding_box()
        below = legend["y"] >= plot["y"] + plot["height"]
        above = legend["y"] + legend["height"] <= plot["y"]
        assert below or above


def test_rows_can_be_filtered_by_verdict(watched, report):
    page = watched.open(report)
    visible = page.locator("#verdicts tbody tr:visible")
    assert visible.count() == 4
    page.get_by_role("button", name="SLOWER").click()
    assert visible.count() == 1 and "×1.20" in visible.first.inner_text()
    page.get_by_role("button", name="all", exact=True).click()
    assert visible.count() == 114


def test_the_page_does_not_scroll_sideways(watched, report):
    page = watched.open(report)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture(scope="module")
def serving_page(tmp_path_factory):
    path = tmp_path_factory.mktemp("serving") / "report.html"
    path.write_text(serving_report(content()), encoding="utf-8")
    return path


def test_the_page_of_experiment_e_draws_its_charts_without_an_error_or_a_request(watched, serving_page):
    """One dot a launch and metric; one bar an arm and phase, whose parts carry their names."""
    page = watched.open(serving_page)
    assert page.locator("#chart-metrics .scatterlayer .points path").count() == 4 * 15
    decode = page.locator("#chart-decode .barlayer .point")
    assert decode.count() == 6 * 3
    assert page.locator("#chart-decode .bartext", has_text="dense").count() == 3
    assert page.locator("#chart-prefill .barlayer .point").first.is_visible()
    assert watched.complaints == [] and watched.requests == [serving_page.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_validation_page_opens_without_an_error_or_a_request(watched, tmp_path):
    rule = {
        "rule": "Durations are positive",
        "requirement": "column values to be between (min_value 1)",
        "fields": ["duration_ns"],
        "severity": "error",
        "success": False,
        "row_count": 9,
        "failed_count": 1,
        "detail": None,
        "examples": [{"row": 3, "place": "samples.jsonl 3", "values": {"duration_ns": "-7"}}],
    }
    results = {"tables": [{"name": "samples", "rows": 9, "kept": 8, "refused": 1, "rules": [rule]}]}
    path = tmp_path / "validation.html"
    path.write_text(render_page(results, title="Validation", report_href="report.html"), encoding="utf-8")
    page = watched.open(path)
    assert page.get_by_text("duration_ns = -7").is_visible()
    assert watched.complaints == [] and watched.requests == [path.as_uri()]
