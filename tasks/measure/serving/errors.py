"""Why a launch failed: at which stage, in one sentence."""

from __future__ import annotations

from typing import Literal

from tilewatch.data_contracts.errors import TilewatchError

Stage = Literal["start", "ready", "verify", "warm_up", "load", "profile", "stop"]


class LaunchError(TilewatchError):
    """A launch that cannot go on; ``stage`` is where it ended, the message why."""

    def __init__(self, stage: Stage, reason: str) -> None:
        super().__init__(reason)
        self.stage: Stage = stage
