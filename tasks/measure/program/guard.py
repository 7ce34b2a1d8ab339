"""Ends the process when its parent dies or a signal asks for it, and never inside a sample."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType
from typing import Optional

PR_SET_PDEATHSIG = 1


class Stopped(BaseException):
    """The process was asked to stop; no exception handler of an operator may swallow this."""


class Guard:
    """Watches parent and signals. ``parent_pid`` is the process whose death ends this one."""

    def __init__(self, parent_pid: int) -> None:
        self._parent_pid = parent_pid
        self._signal: Optional[int] = None
        self._at_once = True
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked)
        self.check()

    def only_between_samples(self) -> None:
        """From now on a signal is heeded at the next ``check``, not at once."""
        self._at_once = False

    def check(self) -> None:
        """Raise Stopped where a signal has come or the parent is gone. Costs a system call."""
        if self._signal is not None:
            raise Stopped(signal.Signals(self._signal).name)
        if os.getppid() != self._parent_pid:
            raise Stopped("parent is gone")

    def _asked(self, number: int, _frame: Optional[FrameType]) -> None:
        self._signal = number
        if self._at_once:
            raise Stopped(signal.Signals(number).name)
