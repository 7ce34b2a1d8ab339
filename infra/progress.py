"""Progress of long work, told to whoever listens: the terminal of the CLI, or the log of a flow run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Listener(Protocol):
    """Hears of stages and of steps done within them."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins."""
        ...

    def advance(self, detail: str, steps: float = 1.0) -> None:
        """``steps`` more are done (a fraction within a step); ``detail`` names the work."""
        ...

    def note(self, message: str) -> None:
        """Something a person should know, without a step."""
        ...


class LogListener:
    """Writes stages and whole steps to a logger."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._name, self._total, self._done = "", 0, 0.0

    def stage(self, name: str, total: int) -> None:
        """Log the beginning of a stage."""
        self._name, self._total, self._done = name, total, 0.0
        self._logger.info("%s: %d steps", name, total)

    def advance(self, detail: str, steps: float = 1.0) -> None:
        """Log when another whole step is done."""
        before, self._done = int(self._done + 1e-9), self._done + steps
        if int(self._done + 1e-9) > before:
            self._logger.info("%s %d/%d: %s", self._name, int(self._done + 1e-9), self._total, detail)

    def note(self, message: str) -> None:
        """Log the message."""
        self._logger.warning("%s", message)


class Silent:
    """Hears nothing: for work that someone else tells of."""

    def stage(self, name: str, total: int) -> None:
        """Nothing is told."""

    def advance(self, detail: str, steps: float = 1.0) -> None:
        """Nothing is told."""

    def note(self, message: str) -> None:
        """Nothing is told."""


_log = LogListener(logging.getLogger("tilewatch"))
_current: ContextVar[Listener | None] = ContextVar("progress", default=None)


def current() -> Listener:
    """The present listener; without one, the log."""
    return _current.get() or _log


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Make ``listener`` the present one for the block."""
    token = _current.set(listener)
    try:
        yield
    finally:
        _current.reset(token)
