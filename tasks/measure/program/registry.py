"""The agents by name: which backend serves each."""

from __future__ import annotations

from backends import Backend

AGENTS = ("cpu", "npu")


def backend_of(agent: str) -> Backend:
    """The backend of ``agent``, one of AGENTS."""
    if agent == "npu":
        from npu_backend import NpuBackend

        return NpuBackend()
    from cpu_backend import CpuBackend

    return CpuBackend()
