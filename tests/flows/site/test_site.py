"""The results site over a real store: what its pages say, what they refuse, and that they only read."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from tests.flows.site.conftest import HOSTILE, RAW_TEXT, rows_of
from tests.publish.conftest import Sweep
from tilewatch.flows.site.app import create_app
from tilewatch.infra.archive import Archive
from tilewatch.infra.objects import ObjectStore
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.publish.site.listings import LISTINGS

BUILD = quote(HOSTILE, safe="")
POINT = "/points/quant_matmul/standalone/quant_matmul-wq_a-64"
PAGES = [
    "/", *LISTINGS, "/data", "/data/runs", "/sql", "/sql?sql=SELECT+1", "/runs/01RUNA", f"/builds/{BUILD}",
    POINT,
    "/curves/01RUNB/quant_matmul", f"/comparisons/cann-8.5/{BUILD}/1", "/runs?q=nothing+like+it",
]  # fmt: skip


@pytest.mark.parametrize("address", PAGES)
def test_a_page_answers_with_a_title_and_without_inline_script(site: TestClient, address: str) -> None:
    answer = site.get(address)
    assert answer.status_code == 200
    assert re.search(r"<h1>\S", answer.text)
    scripts = re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", answer.text)
    assert scripts == [] and "script-src 'self'" in answer.headers["content-security-policy"]
    assert (
        "unsafe-inline" not in answer.headers["content-security-policy"].split("script-src")[1].split(";")[0]
    )


@pytest.mark.parametrize("address", PAGES)
def test_a_hostile_label_is_text_on_every_page(site: TestClient, address: str) -> None:
    text = site.get(address).text
    assert "<script>alert" not in text
    shown = re.sub(r'="[^"]*"', "", text)  # the value of a choice is exact; what is shown is not
    assert "\x1b" not in shown and "\u202e" not in shown


def test_the_start_page_leads_from_the_regression_to_the_raw_file_and_the_repeat_command(
    site: TestClient,
) -> None:
    start = site.get("/").text
    assert POINT in start and "×1.20" in start
    point = site.get(POINT).text
    assert "tilewatch run quant_matmul --points quant_matmul-wq_a-64 --arms standalone" in point
    captured = re.findall(r'href="(/captures/[^"]+)"', point)
    assert captured and site.get(captured[0]).status_code == 200
    capture = str(rows_of(site, "/profiles.json")[0]["capture_id"])
    page = site.get(f"/captures/{capture}").text
    (raw,) = re.findall(r'href="(/captures/[^"]+/raw/stdout.log)"', page)
    answer = site.get(raw)
    assert answer.text == RAW_TEXT and "attachment" in answer.headers["content-disposition"]


def test_what_a_reader_chose_is_in_the_address_and_the_data_follow_it(site: TestClient) -> None:
    chosen = rows_of(site, "/runs.json?build=cann-8.5&sort=experiment")
    assert [row["experiment"] for row in chosen] == sorted(str(row["experiment"]) for row in chosen)
    assert {row["build"] for row in chosen} == {"cann-8.5"} and len(chosen) == 4
    assert len(rows_of(site, "/runs.json?q=weight_form")) == 2
    assert '<option selected value="cann-8.5">' in site.get("/runs?build=cann-8.5").text


def test_a_formula_in_a_csv_file_is_text(site: TestClient) -> None:
    lines = site.get("/quarantine.csv").text
    assert "'=HYPERLINK(1)" in lines and "not a number" in lines


def test_sort_and_filter_by_what_is_no_column_change_nothing(site: TestClient) -> None:
    plain = rows_of(site, "/runs.json")
    assert rows_of(site, "/runs.json?sort=1;DROP+TABLE+runs&nosuch=1") == plain


@pytest.mark.parametrize(
    "sql",
    [
        "COPY runs TO '/tmp/x.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "INSTALL httpfs",
        "SET enable_external_access=true",
        "SELECT 1; SELECT 2",
        "ATTACH '/tmp/x.db'",
        "SELECT nosuch FROM runs",
    ],
)
def test_sql_that_does_more_than_read_is_refused(site: TestClient, sql: str) -> None:
    answer = site.get("/sql", params={"sql": sql})
    assert answer.status_code == 400 and 'class="failure"' in answer.text


def test_sql_answers_as_page_json_and_csv(site: TestClient) -> None:
    sql = "SELECT count(*) AS n FROM points WHERE build = 'cann-8.5'"
    (row,) = rows_of(site, f"/sql.json?sql={quote(sql)}")
    assert site.get("/sql.csv", params={"sql": sql}).text.splitlines() == ['"n"', str(row["n"])]
    assert f"<td>{row['n']}</td>" in site.get("/sql", params={"sql": sql}).text


def test_an_address_that_names_nothing_says_so(site: TestClient) -> None:
    for address in ("/runs/01NOSUCH", "/builds/none", "/nosuch", "/data/nosuch", "/static/../app.py"):
        answer = site.get(address)
        assert answer.status_code == 404 and "Traceback" not in answer.text


@pytest.mark.parametrize("path", ["../../../../etc/passwd", "%2e%2e/manifest.json", "nosuch.log"])
def test_only_files_of_the_manifest_are_given_out(site: TestClient, path: str) -> None:
    capture = rows_of(site, "/profiles.json")[0]["capture_id"]
    assert site.get(f"/captures/{capture}/raw/{quote(path)}").status_code == 404


def test_a_request_for_another_host_is_refused(site: TestClient) -> None:
    assert site.get("/runs", headers={"host": "evil.example"}).status_code == 400


def test_the_site_only_reads(site: TestClient, archive: Archive) -> None:
    before = sorted(info.key for info in archive.objects.list(""))
    for address in PAGES:
        site.get(address)
    assert site.post("/runs").status_code == 405 and site.delete("/runs/01RUNA").status_code == 405
    assert sorted(info.key for info in archive.objects.list("")) == before


def test_an_empty_archive_says_what_to_do(new_bucket) -> None:
    endpoint = new_bucket()
    empty = Archive(endpoint, ObjectStore(endpoint), TableStore(endpoint))
    with TestClient(create_app(empty), base_url="http://localhost") as client:
        assert "tilewatch run A" in client.get("/").text and "tilewatch run A" in client.get("/runs").text
        assert all(client.get(path).status_code == 200 for path in (*LISTINGS, "/data"))


def test_a_new_commit_is_seen_within_seconds(site: TestClient, archive: Archive) -> None:
    assert not [r for r in rows_of(site, "/runs.json") if r["run_id"] == "01RUNC"]
    archive.tables.write_run(Sweep("cann-9", "01RUNC", "simulated").tables())
    deadline = time.monotonic() + 30
    while not [r for r in rows_of(site, "/runs.json") if r["run_id"] == "01RUNC"]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
