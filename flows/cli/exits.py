"""Exit codes of every verb, and the one place where errors become a sentence instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tilewatch.data_contracts.errors import ENVIRONMENT, FAILED, USAGE, TilewatchError
from tilewatch.flows.cli.output import complain
from tilewatch.infra.errors import is_full

__all__ = ["ENVIRONMENT", "FAILED", "INTERRUPTED", "MEANINGS", "OK", "USAGE", "told"]

OK = 0
INTERRUPTED = 130

MEANINGS = {
    OK: "done; a sweep whose A/A control failed is stored, flagged and warned about",
    FAILED: "the work itself failed: a process did not measure, a check disagreed, nothing was found",
    USAGE: "the request is wrong: unknown verb, option, experiment, column or setting",
    ENVIRONMENT: "the surroundings are wrong: store unreachable, credentials refused, disk full, no torch",
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
        if not is_full(error):
            raise
        where = f" at {error.filename}" if error.filename else ""
        complain(
            f"no space left on the disk{where}", "Free space; a run goes on with `tilewatch run --resume RUN`"
        )
        raise typer.Exit(ENVIRONMENT) from None
