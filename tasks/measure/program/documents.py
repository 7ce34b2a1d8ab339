"""The two documents of a capture: what was measured and how it ended, and where it was measured."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

import machine
from method_version import METHOD_VERSION, SCHEMA_VERSION
from plan_file import Plan

if TYPE_CHECKING:
    from points import Measurement

FROM_THE_PLAN = (
    "run_id", "experiment", "experiment_name", "plan_hash", "arm", "role", "kind", "process_index", "block",
    "seed", "agent", "lease_id", "build", "method", "method_hash", "amount",
)  # fmt: skip


def capture(
    plan: Plan,
    measurement: "Measurement",
    reason: Optional[str],
    variables: Mapping[str, str],
    evidence: str,
) -> Dict[str, Any]:
    """``capture.json`` without its times. ``reason`` is None where every point was measured."""
    return {
        "schema_version": SCHEMA_VERSION,
        **{name: plan[name] for name in FROM_THE_PLAN},
        "method_version": METHOD_VERSION,
        "evidence": evidence,
        "status": "complete" if reason is None else "failed",
        "failure_reason": reason,
        "argv": [sys.executable, *sys.argv],
        "environment_variables": dict(variables),
        "sample_count": measurement.sample_count,
        "discarded_count": measurement.discarded_count,
        "in_calls_ns": measurement.sampler.in_calls_ns,
        "peak_rss_bytes": machine.peak_rss_bytes(),
    }


def environment(plan: Plan, device: Mapping[str, Any], components: Mapping[str, str]) -> Dict[str, Any]:
    """``environment.json`` without what is known only at the end."""
    return {
        "build": {**plan["build"], "components": dict(components)},
        "device": dict(device),
        "packages": machine.packages(),
    }


def tenants(
    before: machine.Neighbours, start: machine.Neighbours, end: machine.Neighbours, now: machine.Neighbours
) -> Dict[str, Any]:
    """Load and busy neighbours while torch was imported, while it was measured, and since."""
    return {"before": start.since(before), "during": end.since(start), "after": now.since(end)}
