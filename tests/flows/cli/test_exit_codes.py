"""Every error of ours has the one base, and so a sentence, a hint and an exit code."""

from __future__ import annotations

import ast
import errno
import importlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import typer

from tilewatch.data_contracts import schema
from tilewatch.data_contracts.errors import ENVIRONMENT, FAILED, USAGE, TilewatchError
from tilewatch.flows.alerts import plain
from tilewatch.flows.cli.exits import (
    MEANINGS,
    NOT_COMPARABLE,
    POINTS_MISSING,
    SLOWER,
    FailOn,
    fail_on,
    told,
)
from tilewatch.tasks.predict.errors import PredictError

ROOT = Path(__file__).parents[3]
PROGRAMS = ("tasks/measure/program/", "tasks/measure/reference_server/")
"""They run in another interpreter; what they raise ends as the exit code of their own process."""

WRONG_REQUEST = {
    "BuildEnvironmentError", "DeploymentError", "ExperimentError", "LoadFileError", "OutOfScope", "PlanError",
    "PredictError", "QueryError", "SettingsError", "SimulatedBuildError", "SimulationError",
}  # fmt: skip
WRONG_SURROUNDINGS = {
    "BucketError", "CredentialsError", "MeasureError", "NoSpaceError", "ServiceError",
    "StoreUnreachableError", "WrongDeviceError",
}  # fmt: skip


def exceptions(path: Path) -> Iterator[str]:
    """Names of the exception classes that a module defines; a base counts by its name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            if any(base.endswith(("Error", "Exception")) or base == "OutOfScope" for base in bases):
                yield node.name


def found() -> dict[str, type]:
    """Every exception class outside the programs, by its name."""
    classes = {}
    for package in ("data_contracts", "tasks", "infra", "flows"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(PROGRAMS):
                continue
            for error in exceptions(path):
                module = importlib.import_module(f"tilewatch.{name.removesuffix('.py').replace('/', '.')}")
                classes[error] = getattr(module, error)
    return classes


def test_every_error_has_the_one_base_and_its_exit_code() -> None:
    classes = found()
    assert [name for name, error in classes.items() if not issubclass(error, TilewatchError)] == []
    codes = {name: error.exit_code for name, error in classes.items() if issubclass(error, TilewatchError)}
    assert {n for n, code in codes.items() if code == USAGE} >= WRONG_REQUEST
    assert {n for n, code in codes.items() if code == ENVIRONMENT} >= WRONG_SURROUNDINGS
    assert set(codes.values()) == {FAILED, USAGE, ENVIRONMENT, NOT_COMPARABLE} <= MEANINGS.keys()
    assert len(codes) > 35, "the search finds nothing"


@pytest.mark.parametrize(
    ("verdict", "asked", "code"),
    [
        ("SLOWER", [FailOn.SLOWER], SLOWER),
        ("SLOWER", [FailOn.MISSING, FailOn.NOT_COMPARABLE], None),
        ("MISSING", [FailOn.MISSING], POINTS_MISSING),
        ("MISSING", [FailOn.NOT_COMPARABLE, FailOn.MISSING], NOT_COMPARABLE),
        ("SAME", list(FailOn), None),
    ],
)
def test_what_fail_on_names_ends_with_its_own_code(
    verdict: str, asked: list[FailOn], code: int | None
) -> None:
    row = {
        "verdict": verdict, "confirmed": None, "refused": None, "q_value": 0.01, "control_status": "ok",
        "base_ns": 1.0, "verdict_reason": "why",
    }  # fmt: skip
    rows = pa.Table.from_pylist([row], pa.schema([schema("comparisons").field(name) for name in row]))
    if code is None:
        fail_on(rows, asked)
        return
    with pytest.raises(typer.Exit) as ended:
        fail_on(rows, asked)
    assert ended.value.exit_code == code


def test_a_folder_that_may_not_be_written_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, told():
        raise PermissionError(errno.EROFS, "Read-only file system", "/mnt/home/spool")
    assert ended.value.exit_code == ENVIRONMENT
    assert "/mnt/home/spool cannot be written: Read-only file system" in capsys.readouterr().err


def test_an_alert_in_a_terminal_has_no_marks() -> None:
    told_text = (
        "**1 point is SLOWER than in base, confirmed in a second lease.**\n\n"
        "| point | ratio | before | now | cause |\n|---|---|---|---|---|\n"
        "| A wq_a M 64 | ×1.67 | 2.5 µs | 4.2 µs | cause: tiling changed |\n\n"
        "Published at `comparisons/base/new/v1`, [report](file:///home/report.html)\n"
    )
    assert plain(told_text) == (
        "1 point is SLOWER than in base, confirmed in a second lease.\n\n"
        "  A wq_a M 64: ×1.67, 2.5 µs before, 4.2 µs now; cause: tiling changed\n\n"
        "Published at comparisons/base/new/v1, report: /home/report.html"
    )


def test_an_error_ends_a_verb_with_its_own_code_its_sentence_and_its_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Made(TilewatchError):
        exit_code = ENVIRONMENT

    with pytest.raises(typer.Exit) as ended, told():
        raise Made("the thing is not there", "Install the thing")
    assert ended.value.exit_code == ENVIRONMENT
    assert capsys.readouterr().err == "error: the thing is not there\nwhat to do: Install the thing\n"


def test_an_error_that_crosses_a_process_border_keeps_its_fields() -> None:
    error = pickle.loads(pickle.dumps(PredictError("cann", "1.2.3 has no rules")))
    assert (str(error), error.field, error.rule) == ("cann: 1.2.3 has no rules", "cann", "1.2.3 has no rules")
    other = pickle.loads(pickle.dumps(TilewatchError("it failed", "try again")))
    assert (str(other), other.hint) == ("it failed", "try again")
