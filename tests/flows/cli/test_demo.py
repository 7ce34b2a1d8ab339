"""`tilewatch demo` as a user starts it: two simulated builds, one report that says so on every page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TILEWATCH = Path(sys.executable).parent / "tilewatch"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report whose path the command prints; nothing opens it."""
    home = tmp_path_factory.mktemp("demo") / "home"
    own = {"TILEWATCH_HOME": str(home), "TILEWATCH_LOCK_FOLDER": str(home / "locks"), "BROWSER": "false"}
    done = subprocess.run(
        [str(TILEWATCH), "demo", "--no-open"],
        env={**os.environ, **own}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("SIMULATED: 218 points armed, 218 compared, 0 refused, 0 missing.")
    path = Path(done.stdout.splitlines()[-1].removeprefix("report: "))
    assert path.is_relative_to(home / "demo")
    return path


def lead(report: Path) -> str:
    (found,) = re.findall(r'<p class="lead">(.*?)</p>', report.read_text(), re.DOTALL)
    return re.sub(r"\s+", " ", found)


def test_the_first_sentence_names_the_worst_row_its_ratio_and_its_cause(report: Path) -> None:
    first = lead(report)
    assert first.startswith("218 points armed, 218 compared, 0 refused, 0 missing. All that was compared is ")
    assert ". A dynamic_quant wq_b M 32, arm standalone is SLOWER: ×1.67 (95 % interval ×1.6" in first
    assert "cause: tiling changed, used_core_num 32 → 2, tiling_key 2 → 10; changed component" in first


def test_every_page_and_every_section_says_simulated(report: Path) -> None:
    page = report.read_text()
    headings = re.findall(r"<h[12][ >].*?</h[12]>", page, re.DOTALL)
    assert len(headings) == 10
    assert all("SIMULATED" in heading for heading in headings)
    assert "<title>SIMULATED: " in page
    assert "<title>SIMULATED: " in report.with_name("validation.html").read_text()
    runs = list(report.parents[4].glob("01*/report.html"))
    assert len(runs) == 2
    assert all("<title>SIMULATED: " in run.read_text() for run in runs)


def test_a_slowdown_without_a_tiling_change_is_given_no_tiling_as_cause(report: Path) -> None:
    page = re.sub(r"\s+", " ", report.read_text())
    rows = [row for row in re.findall(r'<tr data-verdict="SLOWER">.*?</tr>', page) if "bf16" in row]
    assert len(rows) == 2
    assert all("no tiling change observed" in row and "tiling changed" not in row for row in rows)


def test_every_tiling_of_a_run_stands_beside_its_prediction(report: Path) -> None:
    home = report.parents[5]
    run = min(path.name for path in (home / "reports").glob("01*"))
    done = subprocess.run(
        [str(TILEWATCH), "predict", "observed", run, "--json"],
        env={**os.environ, "TILEWATCH_HOME": str(home), "TILEWATCH_LOCK_FOLDER": str(home / "locks")},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    seen = {(row["operator"], row["field"]): row for row in told["by_field"]}
    assert seen[("DynamicQuant", "block_dim")]["agree"] == seen[("DynamicQuant", "block_dim")]["compared"] > 0
    assert ("GroupedMatmul", "single_n") in seen and told["disagreements"] == []


@pytest.mark.browser
def test_all_charts_of_the_report_are_drawn_and_nothing_fails(report: Path) -> None:
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("needs Debian's chromium: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    complaints: list[str] = []
    requests: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(report.as_uri())
        page.wait_for_load_state("networkidle")
        charts = page.locator(".chart").count()
        drawn = page.locator(".chart .scatterlayer .trace, .chart .barlayer .trace").count()
        browser.close()
    assert charts == 22
    assert drawn >= 2 * charts
    assert complaints == [] and requests == [report.as_uri()]
