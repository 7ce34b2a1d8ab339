"""The structured log: one JSON line an event in ``<home>/logs/tilewatch.jsonl``, with run and capture ids.

Whoever works on a run binds its id with ``recorded``; every event and every message of the logger
``tilewatch`` inside that block is written with it, beside the Prefect flow run where there is one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from tilewatch.infra.settings import Settings

LIMIT_BYTES = 20 << 20
EXTRA_LOGGERS = "PREFECT_LOGGING_EXTRA_LOGGERS"
FLOW_RUN = "PREFECT__FLOW_RUN_ID"
"""Variable in which a Prefect worker tells a process its flow run."""

logger = logging.getLogger("tilewatch")
_bound: ContextVar[Mapping[str, Any] | None] = ContextVar("bound", default=None)


def log_file(settings: Settings) -> Path:
    """Where the events of this home are."""
    return settings.home / "logs" / "tilewatch.jsonl"


def event(what: str, **fields: Any) -> None:
    """Log that something happened, in one line for people and as fields for programs."""
    words = " ".join(f"{name}={value}" for name, value in fields.items())
    logger.info("%s %s", what, words, extra={"event": what, "fields": fields})


@contextmanager
def recorded(settings: Settings, **ids: str) -> Iterator[None]:
    """Write the events of the block to the log file, each with ``ids``."""
    token = _bound.set({**(_bound.get() or {}), **ids})
    handler = (
        None if any(isinstance(h, _JsonLines) for h in logger.handlers) else _JsonLines(log_file(settings))
    )
    level, propagates = logger.level, logger.propagate
    if handler:
        logger.addHandler(handler)
        # At a prompt progress bars say it; a worker's log, which asks for this logger, has every event.
        logger.propagate = EXTRA_LOGGERS in os.environ
        logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        _bound.reset(token)
        if handler:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagates
            handler.close()


class _JsonLines(logging.FileHandler):
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists() and path.stat().st_size > LIMIT_BYTES:
            path.replace(path.with_suffix(".jsonl.old"))
        super().__init__(path, encoding="utf-8", delay=True)
        self.setFormatter(_Line(json_ensure_ascii=False, json_default=str))


class _Line(JsonFormatter):
    """One line: when, how bad, what, and every id and field that is known."""

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        """Fill the line from the record, the bound ids and the fields of the event."""
        log_data |= {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "event": getattr(record, "event", "message"),
            "message": record.getMessage(),
            "pid": os.getpid(),
            **(_bound.get() or {}),
            **getattr(record, "fields", {}),
        }
        if flow_run := os.environ.get(FLOW_RUN):
            log_data["flow_run_id"] = flow_run
