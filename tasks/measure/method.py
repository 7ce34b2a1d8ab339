"""How numbers are taken: the method of an agent and its hash. Different methods are never compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewatch.tasks.plan.ids import short_hash

METHOD_VERSION = 2
"""Equals METHOD_VERSION of the measuring program; a test holds the two together."""


def default_method(agent: str, *, graphs: bool = False, tenants: str = "refuse") -> dict[str, Any]:
    """The method of ``agent``: cold weights, hot activations, one thread, wall or device time of batches.

    ``graphs``: some points are replayed from a captured graph; each point says which. ``tenants``: refuse
    to measure an NPU beside other processes, or flag them.

    Raises ValueError for an agent that executes nothing here.
    """
    if agent not in _OF_AGENT:
        raise ValueError(f"no measuring method for agent {agent!r}; known: {', '.join(_OF_AGENT)}")
    policy = {"tenants": tenants} if agent == "npu" else {}
    return {
        "method_version": METHOD_VERSION,
        "cache": "rotate_weights_2x_last_level_cache",
        "launch_mode": "as each point says" if graphs else "eager",
        "threads": 1,
        "activation": "hot",
        **_OF_AGENT[agent],
        **policy,
    }


_OF_AGENT: Mapping[str, Mapping[str, str]] = {
    "cpu": {
        "timer": "perf_counter_ns",
        "allocator": "glibc keeps freed blocks up to 32 MiB",
        "warm_up": "last three rounds within 1 %",
        "profiler": "torch.profiler cpu after timing",
    },
    "npu": {
        "timer": "event pair around a batch",
        "warm_up": "last three rounds within max(1 %, 2 ticks)",
        "profiler": "torch_npu.profiler Level1 AiCoreNone after timing",
        "sustained_load": "500 ms before the first sample",
    },
}


def method_hash(method: Mapping[str, Any]) -> str:
    """First 16 hex digits of sha256 over the canonical JSON of the method."""
    return short_hash(dict(method))
