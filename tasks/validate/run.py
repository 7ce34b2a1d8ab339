"""Validate tables in a separate process and split them into what is stored and what is quarantined."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from data_contracts import ContractError, conform, expectations, schema
from tasks.validate.checks import check_rows
from tasks.validate.context import context_of
from tasks.validate.exchange import Outcome, read_outcomes, write_tables
from tasks.validate.refuse import refuse
from tasks.validate.results import table_result

TIME_LIMIT_S = 900.0
PACKAGES = Path(__file__).parent.parent.parent


class ValidationError(RuntimeError):
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


def validate_tables(
    tables: Mapping[str, pa.Table],
    work_dir: Path,
    *,
    python: str = sys.executable,
    time_limit_s: float = TIME_LIMIT_S,
) -> Validated:
    """Check types against the contracts' Arrow schemas and values by Great Expectations.

    ``work_dir`` takes the exchanged files and is left as it was; ``python`` runs the validating process, one
    for all tables. A row that breaks a rule of severity error moves to quarantine, once per broken rule; a
    warning, a rule over the whole table and a rule that could not run leave rows where they are and show
    in ``checks``. Duplicate keys: see ``refuse``. Ids are hashes of what they name, so validating the same
    tables again adds nothing to a store. Raises ValidationError for a table that has no contract or does not
    fit it, and where the process fails or exceeds ``time_limit_s``.
    """
    try:
        conformed = {name: conform(name, table) for name, table in tables.items()}
    except ContractError as error:
        raise ValidationError(str(error)) from error
    outcomes = _outcomes(conformed, work_dir, python, time_limit_s) if conformed else {}
    context = context_of(conformed)
    kept: dict[str, pa.Table] = {}
    quarantines, checks, results = [schema("quarantine").empty_table()], [schema("checks").empty_table()], []
    with duckdb.connect() as connection:
        for name, table in conformed.items():
            rules = expectations(name)
            found = refuse(name, table, rules, outcomes[name], context, connection)
            kept[name] = found.kept
            quarantines.append(found.quarantine)
            checks.append(check_rows(name, table, rules, outcomes[name], context, connection))
            results.append(table_result(name, table, rules, outcomes[name], found))
    return Validated(kept, pa.concat_tables(quarantines), pa.concat_tables(checks), {"tables": results})


def _outcomes(
    tables: Mapping[str, pa.Table], work_dir: Path, python: str, time_limit_s: float
) -> dict[str, list[Outcome]]:
    with tempfile.TemporaryDirectory(prefix="validate-", dir=work_dir) as name:
        folder = Path(name)
        write_tables(folder, tables)
        _run(folder, python, time_limit_s)
        try:
            return read_outcomes(folder)
        except (OSError, ValueError) as error:
            raise ValidationError(f"the validating process left no readable answer: {error}") from error


def _run(folder: Path, python: str, time_limit_s: float) -> None:
    """Run ``python -m tasks.validate`` to its end; its process group is killed at the time limit."""
    path = os.pathsep.join(p for p in (str(PACKAGES), os.environ.get("PYTHONPATH")) if p)
    environment = {**os.environ, "PYTHONPATH": path, "GX_ANALYTICS_ENABLED": "false"}
    with (folder / "stderr.log").open("w+b") as stderr:
        try:
            process = subprocess.Popen(
                [python, "-m", "tasks.validate", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ValidationError(f"the validating process could not be started: {error}") from error
        try:
            code = process.wait(time_limit_s)
        except subprocess.TimeoutExpired as error:
            message = f"validation took longer than {time_limit_s:g} s and was stopped"
            raise ValidationError(message) from error
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code:
            stderr.seek(0)
            said = stderr.read().decode("utf-8", "replace").strip().splitlines() or ["no message"]
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise ValidationError(f"the validating process ended with {ended}: {said[-1]}")
