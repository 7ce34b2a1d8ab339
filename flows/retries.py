"""How tasks that are safe to repeat are retried: only after failures that time can mend."""

from __future__ import annotations

from typing import Any

from prefect.cache_policies import NO_CACHE

from tilewatch.infra.errors import (
    CredentialsError,
    NoSpaceError,
    ServiceError,
    StoreError,
    TableError,
    is_full,
)

MENDED_BY_TIME = (StoreError, ServiceError, TableError, OSError)
NOT_MENDED = (CredentialsError, NoSpaceError)


def worth_retrying(_task: Any, _run: Any, state: Any) -> bool:
    """True if the task failed because a store or a service did not answer."""
    try:
        state.result()
    except NOT_MENDED:
        return False
    except MENDED_BY_TIME as error:
        return not is_full(error)
    except Exception:
        return False
    return True


SAFE_TO_REPEAT: dict[str, Any] = {
    "retries": 3,
    "retry_delay_seconds": [1, 5, 20],
    "retry_condition_fn": worth_retrying,
    "timeout_seconds": 3600,
    "cache_policy": NO_CACHE,
}
"""Settings of a task that stores the same thing again without doubling it."""
