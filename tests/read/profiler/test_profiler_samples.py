"""Every real profiler file at hand is read, or left with a reason: one line a file in profiler_samples.tsv.

``python tests/read/profiler/test_profiler_samples.py`` prints the table anew, to be looked at before it is
committed.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from tilewatch.data_contracts import schema, table_names
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.profiler_files import kind_of
from tilewatch.tasks.read.profiler.profiler_folder import CHECKS, read_profiler
from tilewatch.tasks.read.result import ReadResult

EXPECTED = Path(__file__).with_name("profiler_samples.tsv")
COLUMNS = ("file", "kind", "rows", "quarantined", "self_check", "reason")
ORIGIN = Origin("c" * 32, "01JZZZZZZZZZZZZZZZZZZZZZZZ", "cann", "b" * 16, "ingested", "none", "measured")
CUT_UPSTREAM = ("npu-mfu-analyzer-sample-cann850", "msinsight-server-ut")
ROWS_TWICE_UPSTREAM = "msprof-analyze-ut/ut/advisor/compute_advice/data/kernel_details.csv"
LINE_ORACLES = {
    "kernel_details",
    "op_summary",
    "op_statistic",
    "api_statistic",
    "step_trace",
    "operator_details",
}


def outcomes(folder: Path) -> tuple[list[dict[str, str]], dict[str, ReadResult]]:
    """One line a file: what it is, rows read and refused, the self-check, the reason if it has no rows."""
    results = read_profiler(folder, ORIGIN)
    checks: dict[str, list[bool]] = {}
    for row in results[CHECKS].table.to_pylist():
        checks.setdefault(row["table"], []).append(row["success"])
    lines = []
    for name, result in results.items():
        if name == CHECKS:
            continue
        refused = result.quarantine["reason"].to_pylist()
        kind = kind_of(Path(name).name)
        passed = checks.get(name)
        lines.append(
            {
                "file": name,
                "kind": kind.name if kind else "",
                "rows": str(result.facts.get("rows", 0)),
                "quarantined": str(len(refused)),
                "self_check": "" if passed is None else ("passed" if all(passed) else "failed"),
                "reason": result.facts.get("not_read") or (refused[0] if refused else ""),
            }
        )
    return lines, results


@pytest.fixture(scope="module")
def seen(shared: Path) -> tuple[list[dict[str, str]], dict[str, ReadResult]]:
    return outcomes(shared / "samples/profiler")


@pytest.fixture(scope="module")
def manifest(shared: Path) -> dict[str, str]:
    """Rows that the collector of the samples counted, by file."""
    with (shared / "samples/profiler/MANIFEST.tsv").open(newline="") as stream:
        return {row["local path"]: row["rows"] for row in csv.DictReader(stream, delimiter="\t")}


def test_every_file_has_the_outcome_that_was_looked_at(seen: tuple[list[dict[str, str]], object]) -> None:
    with EXPECTED.open(newline="") as stream:
        expected = list(csv.DictReader(stream, delimiter="\t"))
    assert seen[0] == expected


def test_no_listed_file_is_missing(
    seen: tuple[list[dict[str, str]], object], manifest: dict[str, str]
) -> None:
    assert set(manifest) <= {line["file"] for line in seen[0]}


def test_a_file_without_rows_has_a_reason(seen: tuple[list[dict[str, str]], dict[str, ReadResult]]) -> None:
    without = [line for line in seen[0] if line["rows"] == "0" and not line["reason"]]
    assert {line["kind"] for line in without} <= {"timeline"}
    for line in without:
        assert seen[1][line["file"]].facts["events"] > 0


def test_read_and_refused_rows_add_up_to_the_rows_that_others_counted(
    seen: tuple[list[dict[str, str]], object], manifest: dict[str, str]
) -> None:
    counted = [line for line in seen[0] if line["kind"] in LINE_ORACLES and line["file"] in manifest]
    assert len(counted) > 40
    for line in counted:
        if manifest[line["file"]] != "0":
            assert int(line["rows"]) + int(line["quarantined"]) == int(manifest[line["file"]]), line["file"]


def test_all_complete_runs_pass_their_self_checks(seen: tuple[list[dict[str, str]], object]) -> None:
    checked = [line for line in seen[0] if line["self_check"]]
    failed = [line["file"] for line in checked if line["self_check"] == "failed"]
    assert len(checked) == 34
    assert len(failed) == 5
    assert [name for name in failed if not name.startswith(CUT_UPSTREAM)] == [ROWS_TWICE_UPSTREAM]


def test_every_table_keeps_its_contract(seen: tuple[object, dict[str, ReadResult]]) -> None:
    contracts = [schema(name) for name in table_names()]
    for name, result in seen[1].items():
        result.table.validate(full=True)
        assert result.quarantine.schema.equals(schema("quarantine")), name
        assert result.table.num_columns == 0 or any(result.table.schema.equals(one) for one in contracts), (
            name
        )


if __name__ == "__main__":
    with EXPECTED.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(outcomes(Path(os.environ["TILEWATCH_SHARED"]) / "samples/profiler")[0])
