"""The one base of every error that a person is meant to read: a sentence, what to do, and an exit code.

Each package defines its own errors where it raises them; a new one says its exit code by ``exit_code`` and
needs no entry anywhere else. The programs that run in another interpreter (``tasks/measure/program``,
``tasks/measure/reference_server``) cannot import this module: what they raise ends as the exit code and the
last words of their process.
"""

from __future__ import annotations

import copyreg
from typing import Any, ClassVar

FAILED = 1
USAGE = 2
ENVIRONMENT = 3


class TilewatchError(Exception):
    """A failure in one sentence; ``hint`` says what to do. The command line prints both, never a traceback.

    ``exit_code`` is that of the process it ends: FAILED where the work itself failed, USAGE where the request
    is wrong, ENVIRONMENT where the surroundings are.
    """

    exit_code: ClassVar[int] = FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process borders: a copy keeps its fields, whatever its class asks for when built."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]
