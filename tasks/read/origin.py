"""Where rows come from: the identity that every reader stamps on its tables, and never guesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Evidence = Literal["measured", "predicted", "simulated"]


@dataclass(frozen=True)
class Origin:
    """Identity of one capture. ``process_index`` is None where no process of a plan made the files."""

    capture_id: str
    run_id: str
    build: str
    build_id: str
    experiment: str
    arm: str
    evidence: Evidence
    process_index: int | None = None

    def columns(self) -> dict[str, str | int | None]:
        """The identity as column name → value, in the words of the contracts."""
        return {
            "capture_id": self.capture_id,
            "run_id": self.run_id,
            "build": self.build,
            "build_id": self.build_id,
            "experiment": self.experiment,
            "arm": self.arm,
            "process_index": self.process_index,
            "evidence": self.evidence,
        }
