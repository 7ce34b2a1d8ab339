"""The caller's side: one process for all tables, its failures, what is kept and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.validate.exchange import read_table
from tilewatch.tasks.validate.run import ValidationError, Validator, validate_tables


def sample(number: int, **changes):
    row = {
        "capture_id": "c" * 32,
        "run_id": "01RUN",
        "build": "cpu-1",
        "build_id": "b1",
        "experiment": "B",
        "arm": "nz",
        "point_id": "p1",
        "process_index": 0,
        "role": "main",
        "evidence": "measured",
        "method_hash": "h",
        "sample": number,
        "position": number,
        "calls": 1,
        "duration_ns": 1000 + number,
        "warm_up": False,
        "discarded": False,
        "throttled": False,
        "source_file": "samples.jsonl",
        "source_line": number + 1,
    }
    return {**row, **changes}


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    samples = [
        sample(0),
        sample(1, duration_ns=-7),
        sample(2),
        sample(2, source_line=9),
        sample(3),
        sample(3, duration_ns=5),
        sample(4, build="cpu-2", duration_ns=0, calls=0),
    ]
    tables = {"samples": from_rows("samples", samples), "cliffs": from_rows("cliffs", [])}
    folder = tmp_path_factory.mktemp("work")
    return validate_tables(tables, folder), validate_tables(tables, folder), folder


def test_rows_that_keep_every_rule_stay_in_order(validated):
    kept = validated[0].tables["samples"]
    assert kept["sample"].to_pylist() == [0, 2]


def test_a_refused_row_says_where_it_stood_what_it_said_and_which_rule_refused_it(validated):
    (row,) = [r for r in validated[0].quarantine.to_pylist() if r["value"] == "-7"]
    assert (row["stage"], row["table"], row["build"], row["run_id"]) == (
        "validate",
        "samples",
        "cpu-1",
        "01RUN",
    )
    assert (row["source_file"], row["source_line"]) == ("samples.jsonl", 2)
    assert (row["field"], row["rule"]) == ("duration_ns", "Durations are positive")
    assert row["reason"] == "column values to be between (min_value 1)"
    assert json.loads(row["raw_text"])["duration_ns"] == -7


def test_of_equal_rows_under_one_key_the_first_stays_and_of_differing_rows_none(validated):
    duplicates = [r for r in validated[0].quarantine.to_pylist() if "unique" in r["reason"]]
    assert sorted((r["field"], json.loads(r["value"])["sample"]) for r in duplicates) == [
        ("capture_id, point_id, sample", 2),
        ("capture_id, point_id, sample", 3),
        ("capture_id, point_id, sample", 3),
    ]


def test_a_row_that_breaks_two_rules_has_two_quarantine_rows_and_counts_once(validated):
    broken = [r for r in validated[0].quarantine.to_pylist() if r["build"] == "cpu-2"]
    assert {r["rule"] for r in broken} == {"Durations are positive", "A sample times at least one call"}
    (table,) = [t for t in validated[0].results["tables"] if t["name"] == "samples"]
    assert (table["rows"], table["kept"], table["refused"]) == (7, 2, 5)


def test_each_build_has_its_own_checks(validated):
    checks = [c for c in validated[0].checks.to_pylist() if c["rule"] == "A sample times at least one call"]
    assert [(c["build"], c["success"], c["row_count"], c["failed_count"]) for c in checks] == [
        ("cpu-1", True, 6, 0),
        ("cpu-2", False, 1, 1),
    ]


def test_validating_again_gives_the_same_ids(validated):
    first, again, _ = validated
    assert first.quarantine.equals(again.quarantine) and first.checks.equals(again.checks)
    ids = first.quarantine["quarantine_id"].to_pylist() + first.checks["check_id"].to_pylist()
    assert len(ids) == len(set(ids))


def test_the_exchanged_files_are_gone_afterwards(validated):
    assert list(validated[2].iterdir()) == []


def test_results_are_plain_data(validated):
    assert json.loads(json.dumps(validated[0].results)) == validated[0].results


def python_that(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no room' >&2; exit 3", "ended with exit code 3: no room"),
        ("kill -9 $$", "ended with signal 9: no message"),
        ("exit 0", "left no readable answer"),
        ("sleep 60", "longer than 0.5 s"),
    ],
)
def test_a_failing_process_is_one_clear_error(tmp_path, script, message):
    tables = {"samples": from_rows("samples", [sample(0)])}
    python = python_that(tmp_path, script)
    with pytest.raises(ValidationError, match=message):
        validate_tables(tables, tmp_path, python=python, time_limit_s=0.5 if "sleep" in script else 30)
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


def test_the_process_gets_only_the_columns_that_rules_name(tmp_path):
    python = python_that(tmp_path, f'read line; cp "$3/samples.arrow" {tmp_path}')
    with pytest.raises(ValidationError, match="no readable answer"):
        validate_tables({"samples": from_rows("samples", [sample(0)])}, tmp_path, python=python)
    (handed,) = read_table(tmp_path / "samples.arrow").to_pylist()
    assert (handed["duration_ns"], handed["calls"]) == (1000, 1)
    assert sample(0).keys() - handed.keys() == set()
    assert "device_event_ns" not in handed


def test_a_python_that_is_not_there_is_one_clear_error(tmp_path):
    with pytest.raises(ValidationError, match="could not be started"):
        validate_tables({"samples": from_rows("samples", [])}, tmp_path, python=str(tmp_path / "none"))


def test_a_table_of_the_wrong_type_is_refused_before_any_process_starts(tmp_path):
    table = from_rows("samples", [sample(0)])
    position = table.column_names.index("calls")
    wrong = table.set_column(position, "calls", [["many"]])
    with pytest.raises(ValidationError, match="table samples, column calls"):
        validate_tables({"samples": wrong}, tmp_path, python="/nonexistent")


def test_the_process_starts_before_there_are_tables_and_waits_for_them(tmp_path):
    with Validator(tmp_path) as validator:
        time.sleep(0.5)
        found = validator.validate({"samples": from_rows("samples", [sample(0), sample(1, duration_ns=-7)])})
    assert found.tables["samples"].num_rows == 1
    assert list(tmp_path.iterdir()) == []


def test_a_caller_that_never_made_its_tables_leaves_neither_process_nor_files(tmp_path):
    python = python_that(tmp_path, f"echo $$ > {tmp_path}/pid; exec cat")
    with pytest.raises(KeyError, match="the caller's own"), Validator(tmp_path, python=python):
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        raise KeyError("the caller's own")
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pid", "python"]


def test_the_process_of_a_caller_that_was_killed_ends_without_an_answer(tmp_path):
    command = [sys.executable, "-m", "tilewatch.tasks.validate", str(tmp_path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, b"", [])


def test_no_tables_need_no_process(tmp_path):
    assert validate_tables({}, tmp_path, python="/nonexistent").checks.num_rows == 0


@pytest.mark.parametrize(
    "module",
    [
        "tilewatch.tasks.validate.run",
        "tilewatch.tasks.validate.page",
        "tilewatch.flows.cli",
        "tilewatch.flows",
    ],
)
def test_great_expectations_is_not_imported_by(module):
    code = (
        "import importlib, importlib.util, pkgutil, sys\n"
        f"name = {module!r}\n"
        "if importlib.util.find_spec(name) is None: sys.exit(77)\n"
        "package = importlib.import_module(name)\n"
        "for found in pkgutil.walk_packages(getattr(package, '__path__', []), name + '.'):\n"
        "    if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "sys.exit('great_expectations' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(f"{module} does not exist yet")
    assert done.returncode == 0, done.stderr
