"""Validate tables in a separate process and split them into what is stored and what is quarantined."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tilewatch.data_contracts import ContractError, conform, expectations, schema
from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.validate.checks import check_rows
from tilewatch.tasks.validate.context import context_of
from tilewatch.tasks.validate.exchange import GO, Outcome, looked_at, read_outcomes, write_tables
from tilewatch.tasks.validate.refuse import refuse
from tilewatch.tasks.validate.results import table_result

TIME_LIMIT_S = 900.0
PACKAGES = Path(__file__).parents[3]


class ValidationError(TilewatchError):
    """Validation could not be carried out (it is not a failed rule); nothing was changed or removed."""


@dataclass(frozen=True)
class Validated:
    """What came out of a validation; row numbers and counts refer to the tables as handed in."""

    tables: dict[str, pa.Table]
    """The tables in their contracts' form, without the refused rows."""
    quarantine: pa.Table
    """Contract ``quarantine``: one row per refused row and rule it broke."""
    checks: pa.Table
    """Contract ``checks``: one row per rule, table and build, passed or not."""
    results: dict[str, Any]
    """JSON-able, for ``page.render_page``: ``{"tables": [{name, rows, kept, rules: […]}]}``."""


class Validator:
    """A process for one validation that gets ready while its caller still makes the tables.

    Importing Great Expectations takes it seconds. ``with Validator(folder) as validator``: leaving the block
    ends the process, whatever it was doing, and leaves ``work_dir`` as it was.
    """

    def __init__(self, work_dir: Path, *, python: str = sys.executable) -> None:
        """``work_dir`` takes the exchanged files; ``python`` runs the process."""
        self._work_dir = work_dir
        self._python = python
        self._process: subprocess.Popen[bytes] | OSError

    def __enter__(self) -> Validator:
        self._held = ExitStack()
        name = self._held.enter_context(tempfile.TemporaryDirectory(prefix=".validate-", dir=self._work_dir))
        self._folder = Path(name)
        self._stderr = self._held.enter_context((self._folder / "stderr.log").open("w+b"))
        try:
            self._process = self._started()
        except OSError as error:
            # Nobody has asked for anything yet, and perhaps nobody will.
            self._process = error
        else:
            self._held.callback(_end, self._process)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def validate(self, tables: Mapping[str, pa.Table], *, time_limit_s: float = TIME_LIMIT_S) -> Validated:
        """Check types against the contracts' Arrow schemas and values by Great Expectations; once only.

        A row that breaks a rule of severity error moves to quarantine, once per broken rule; a warning, a
        rule over the whole table and a rule that could not run leave rows where they are and show in
        ``checks``. Duplicate keys: see ``refuse``. Ids are hashes of what they name, so validating the same
        tables again adds nothing to a store. Raises ValidationError for a table that has no contract or does
        not fit it, and where the process fails or exceeds ``time_limit_s``.
        """
        try:
            conformed = {name: conform(name, table) for name, table in tables.items()}
        except ContractError as error:
            raise ValidationError(str(error)) from error
        outcomes = self._outcomes(conformed, time_limit_s) if conformed else {}
        return _split(conformed, outcomes)

    def _started(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(p for p in (str(PACKAGES), os.environ.get("PYTHONPATH")) if p)
        return subprocess.Popen(
            [self._python, "-m", "tilewatch.tasks.validate", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": path, "GX_ANALYTICS_ENABLED": "false"},
            start_new_session=True,
        )

    def _outcomes(self, tables: Mapping[str, pa.Table], time_limit_s: float) -> dict[str, list[Outcome]]:
        if isinstance(self._process, OSError):
            message = f"the validating process could not be started: {self._process}"
            raise ValidationError(message) from self._process
        rows = {name: looked_at(table, expectations(name)) for name, table in tables.items()}
        write_tables(self._folder, rows)
        try:
            self._process.communicate(GO, timeout=time_limit_s)
        except subprocess.TimeoutExpired as error:
            message = f"validation took longer than {time_limit_s:g} s and was stopped"
            raise ValidationError(message) from error
        if code := self._process.returncode:
            self._stderr.seek(0)
            said = self._stderr.read().decode("utf-8", "replace").strip().splitlines() or ["no message"]
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise ValidationError(f"the validating process ended with {ended}: {said[-1]}")
        try:
            return read_outcomes(self._folder)
        except (OSError, ValueError) as error:
            raise ValidationError(f"the validating process left no readable answer: {error}") from error


def validate_tables(
    tables: Mapping[str, pa.Table],
    work_dir: Path,
    *,
    python: str = sys.executable,
    time_limit_s: float = TIME_LIMIT_S,
) -> Validated:
    """``Validator.validate`` for tables that are there already."""
    with Validator(work_dir, python=python) as validator:
        return validator.validate(tables, time_limit_s=time_limit_s)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _split(tables: Mapping[str, pa.Table], outcomes: Mapping[str, list[Outcome]]) -> Validated:
    context = context_of(tables)
    kept: dict[str, pa.Table] = {}
    quarantines, checks, results = [schema("quarantine").empty_table()], [schema("checks").empty_table()], []
    with duckdb.connect() as connection:
        for name, table in tables.items():
            rules = expectations(name)
            found = refuse(name, table, rules, outcomes[name], context, connection)
            kept[name] = found.kept
            quarantines.append(found.quarantine)
            checks.append(check_rows(name, table, rules, outcomes[name], context, connection))
            results.append(table_result(name, table, rules, outcomes[name], found))
    return Validated(kept, pa.concat_tables(quarantines), pa.concat_tables(checks), {"tables": results})
