"""Exit codes of every verb, and the one place where errors become a sentence instead of a traceback."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from tilewatch.data_contracts.errors import ENVIRONMENT, FAILED, USAGE, TilewatchError
from tilewatch.flows.cli.output import complain
from tilewatch.infra.errors import is_full

__all__ = ["ENVIRONMENT", "FAILED", "INTERRUPTED", "MEANINGS", "OK", "USAGE", "fail_on", "told"]

if TYPE_CHECKING:
    import pyarrow as pa

OK = 0
SLOWER = 4
NOT_COMPARABLE = 5
POINTS_MISSING = 6
INTERRUPTED = 130

MEANINGS = {
    OK: "done; a sweep whose A/A control failed is stored, flagged and warned about",
    FAILED: "the work itself failed: a process did not measure, a check disagreed, nothing was found",
    USAGE: "the request is wrong: unknown verb, option, experiment, column or setting",
    ENVIRONMENT: "the surroundings are wrong: store unreachable, credentials refused, disk full, no torch",
    SLOWER: "--fail-on slower: a point is SLOWER; `upgrade`, `regression`: confirmed in a second lease",
    NOT_COMPARABLE: "not comparable: an armed point was refused, is missing or could not be judged; "
    "`upgrade` and `regression` always end so, `compare` with --fail-on not-comparable",
    POINTS_MISSING: "--fail-on missing: the candidate has no value of a point that the baseline has",
    INTERRUPTED: "stopped by ctrl-C; what was measured is kept and the run can be resumed",
}


@contextmanager
def told() -> Iterator[None]:
    """Run a verb; an expected error becomes one message on stderr and its exit code."""
    try:
        yield
    except TilewatchError as error:
        complain(str(error), error.hint)
        raise typer.Exit(error.exit_code) from None
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            complain(
                f"{error.filename or 'a file'} cannot be written: {error.strerror}",
                "Give this user the right to write there, or set TILEWATCH_HOME to a folder of theirs",
            )
            raise typer.Exit(ENVIRONMENT) from None
        if not is_full(error):
            raise
        where = f" at {error.filename}" if error.filename else ""
        complain(
            f"no space left on the disk{where}", "Free space; a run goes on with `tilewatch run --resume RUN`"
        )
        raise typer.Exit(ENVIRONMENT) from None


class FailOn(StrEnum):
    """What can end a verb with an exit code of its own, for CI."""

    SLOWER = "slower"
    NOT_COMPARABLE = "not-comparable"
    MISSING = "missing"


def fail_on(rows: pa.Table, asked: Collection[FailOn]) -> None:
    """End with the exit code of the first of ``asked`` that the ``comparisons`` rows show, in FailOn's order.

    A point is SLOWER unless a second lease denied it.
    """
    from tilewatch.tasks.analyse.comparison.coverage import coverage

    covered = coverage(rows)
    verdicts = rows.select(["verdict", "confirmed"]).to_pylist()
    found = {
        FailOn.SLOWER: any(r["verdict"] == "SLOWER" and r["confirmed"] is not False for r in verdicts),
        FailOn.NOT_COMPARABLE: not covered.whole,
        FailOn.MISSING: covered.missing > 0,
    }
    codes = {FailOn.SLOWER: SLOWER, FailOn.NOT_COMPARABLE: NOT_COMPARABLE, FailOn.MISSING: POINTS_MISSING}
    for what in FailOn:
        if what in asked and found[what]:
            complain(f"{what}: {covered.counts}")
            raise typer.Exit(codes[what])
