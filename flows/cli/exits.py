"""Exit codes of every verb, and the one place where errors become a sentence instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tilewatch.data_contracts import ContractError
from tilewatch.flows.cli.output import complain
from tilewatch.infra.errors import (
    BucketError,
    CredentialsError,
    NoSpaceError,
    QueryError,
    ServiceError,
    SettingsError,
    StoreUnreachableError,
    TilewatchError,
    is_full,
)
from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.collect.manifest import CaptureError
from tilewatch.tasks.collect.unpack import ArchiveError
from tilewatch.tasks.measure.environment import BuildEnvironmentError
from tilewatch.tasks.measure.run import MeasureError
from tilewatch.tasks.plan.experiment import ExperimentError
from tilewatch.tasks.plan.plan import PlanError
from tilewatch.tasks.plan.run_document import RunDocumentError
from tilewatch.tasks.publish.address import PublishError
from tilewatch.tasks.validate.run import ValidationError

OK = 0
FAILED = 1
USAGE = 2
ENVIRONMENT = 3
INTERRUPTED = 130

MEANINGS = {
    OK: "done; a sweep whose A/A control failed is stored, flagged and warned about",
    FAILED: "the work itself failed: a process did not measure, a check disagreed, nothing was found",
    USAGE: "the request is wrong: unknown verb, option, experiment, column or setting",
    ENVIRONMENT: "the surroundings are wrong: store unreachable, credentials refused, disk full, no torch",
    INTERRUPTED: "stopped by ctrl-C; what was measured is kept and the run can be resumed",
}

_USAGE_ERRORS = (SettingsError, QueryError, ExperimentError, PlanError, BuildEnvironmentError)
_ENVIRONMENT_ERRORS = (
    StoreUnreachableError, CredentialsError, BucketError, NoSpaceError, ServiceError, MeasureError,
)  # fmt: skip
_WORK_ERRORS = (
    TilewatchError, RunDocumentError, ContractError, AnalysisError, CaptureError, ArchiveError,
    PublishError, ValidationError,
)  # fmt: skip
_EXPECTED = (*_USAGE_ERRORS, *_ENVIRONMENT_ERRORS, *_WORK_ERRORS)


@contextmanager
def told() -> Iterator[None]:
    """Run a verb; an expected error becomes one message on stderr and its exit code."""
    try:
        yield
    except _EXPECTED as error:
        complain(str(error), getattr(error, "hint", ""))
        raise typer.Exit(code_of(error)) from None
    except OSError as error:
        if not is_full(error):
            raise
        where = f" at {error.filename}" if error.filename else ""
        complain(
            f"no space left on the disk{where}", "Free space; a run goes on with `tilewatch run --resume RUN`"
        )
        raise typer.Exit(ENVIRONMENT) from None


def code_of(error: Exception) -> int:
    """Exit code of an expected error."""
    if isinstance(error, _USAGE_ERRORS):
        return USAGE
    return ENVIRONMENT if isinstance(error, _ENVIRONMENT_ERRORS) else FAILED
