"""The cpu agent: reference kernels on one pinned core, timed by the host's clock."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import machine
from backends import Call, Interval, Prepare
from interference import Interference

if TYPE_CHECKING:
    from guard import Guard


class CpuBackend:
    """See ``backends.Backend``."""

    tick_ns = 0
    proves_format = False
    sustained_load_s = 0.0

    def __init__(self) -> None:
        self._keeps_freed_memory = False

    def variables(self, kind: str, log_folder: Optional[Path]) -> Dict[str, str]:
        """None: a CPU has no logs to switch."""
        return {}

    def device(self) -> Dict[str, Any]:
        """The machine itself."""
        return machine.device()

    def components(self) -> Dict[str, str]:
        """Versions of torch and numpy, and the hash of the reference kernels."""
        import build

        return build.components()

    def evidence(self) -> str:
        """Real times of real kernels."""
        return "measured"

    def occupied(self) -> Optional[str]:
        """Nobody: neighbours are listed in the environment, not refused."""
        return None

    def state(self) -> Dict[str, Any]:
        """Nothing beside the neighbours."""
        return {}

    def attachments(self) -> Dict[str, Any]:
        """Whether freed memory stays with the process, as the method says."""
        return {"keeps_freed_memory": self._keeps_freed_memory}

    def open(self, threads: int) -> List[int]:
        """Pin to ``threads`` CPUs, settle the allocator and register the kernels."""
        pinned = machine.pin(threads)
        self._keeps_freed_memory = machine.keep_freed_memory()
        import cpu_kernels
        import torch

        torch.set_num_threads(threads)
        cpu_kernels.register()
        return pinned

    def interference(self, pinned: List[int]) -> Interference:
        """Preemption of this thread, throttling of its core."""
        return Interference(pinned[0] if pinned else None)

    def place(self, tensor: Any) -> Any:
        """Where it is."""
        return tensor

    def quantised(self, x: Any) -> Tuple[Any, Any]:
        """By the same kernel that the operator calls."""
        import torch

        quantised, scale = torch.ops.npu.npu_dynamic_quant(x)
        return quantised, scale

    def arguments(self, operator: str, wanted: Dict[str, Any]) -> Dict[str, Any]:
        """As they are: the reference kernels have the newest schema."""
        return wanted

    def run(self, batch: Sequence[Call]) -> Interval:
        """Wall time of the batch by ``perf_counter_ns``."""
        start_ns = time.perf_counter_ns()
        for call in batch:
            call()
        return Interval(max(time.perf_counter_ns() - start_ns, 1))

    def captured(self, calls: Sequence[Call]) -> List[Call]:
        """Never asked for: a plan for this agent is eager."""
        raise NotImplementedError("a CPU replays no graphs")

    def synchronise(self) -> None:
        """Calls are synchronous here."""

    def forget_dispatched(self) -> None:
        """Forget which kernels served."""
        import cpu_kernels

        cpu_kernels.forget_dispatched()

    def dispatched(self, operator: str) -> Optional[str]:
        """The reference kernel; ND ``aten::mm`` is torch's own."""
        import cpu_kernels
        from operators import MM

        served = cpu_kernels.dispatched(operator)
        return operator if served is None and operator == MM else served

    def profile(
        self,
        points: Sequence[Mapping[str, Any]],
        prepare: Prepare,
        calls: int,
        folder: Path,
        guard: "Guard",
        counters: bool,
    ) -> Dict[str, Any]:
        """One Kineto trace, a range a point."""
        from profiled import profile_points

        profile_points(points, prepare, calls, folder, guard)
        return {}
