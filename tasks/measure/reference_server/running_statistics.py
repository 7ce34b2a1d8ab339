"""Counts of an engine since it was loaded: what ``/server_info`` says of its steps."""

from __future__ import annotations

from typing import Any, Dict

PHASES = {"EXTEND": "prefill", "DECODE": "decode"}


class RunningStatistics:
    """Steps, their time and their batch by phase."""

    def __init__(self) -> None:
        self._steps = dict.fromkeys(PHASES.values(), 0)
        self._step_ns = dict.fromkeys(PHASES.values(), 0)
        self._requests = dict.fromkeys(PHASES.values(), 0)

    def step(self, stage: str, requests: int, duration_ns: int) -> None:
        """Count one step of ``stage``, EXTEND or DECODE, that served ``requests`` requests."""
        phase = PHASES[stage]
        self._steps[phase] += 1
        self._step_ns[phase] += duration_ns
        self._requests[phase] += requests

    def document(self) -> Dict[str, Any]:
        """Totals and means; a mean over no step is null. The running batch is that of decode steps."""
        decode = self._steps["decode"]
        return {
            "steps": dict(self._steps),
            "step_time_total_ns": dict(self._step_ns),
            "step_requests_total": dict(self._requests),
            "step_time_mean_ns": {
                phase: self._step_ns[phase] / count if count else None for phase, count in self._steps.items()
            },
            "running_batch_mean": self._requests["decode"] / decode if decode else None,
        }
