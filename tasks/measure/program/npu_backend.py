"""The npu agent: torch_npu on one device, batches timed by event pairs, kernels by the profiler."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import npu_environment
from backends import Call, Interval, Prepare
from interference import Interference

if TYPE_CHECKING:
    from guard import Guard

INT8_MAX = 127


class GraphsMissing(RuntimeError):
    """The device or its driver captures no graph; the message says what it answered."""


class NpuBackend:
    """See ``backends.Backend``. A weight that stayed ND where FRACTAL_NZ was asked for is a failure."""

    tick_ns = 20
    proves_format = True
    sustained_load_s = 0.5

    def __init__(self) -> None:
        self._events: List[Any] = []

    def variables(self, kind: str, log_folder: Optional[Path]) -> Dict[str, str]:
        """Logs on for a tiling process, errors only for the others."""
        return npu_environment.log_variables(kind, log_folder)

    def device(self) -> Dict[str, Any]:
        """The first visible device by torch_npu's properties; the host by the system."""
        _import()
        return npu_environment.device()

    def components(self) -> Dict[str, str]:
        """torch, torch_npu, CANN, driver and firmware."""
        _import()
        return npu_environment.components()

    def evidence(self) -> str:
        """``simulated`` on the software NPU of the tests, by the driver's own marker."""
        return "measured" if npu_environment.marker() is None else "simulated"

    def occupied(self) -> Optional[str]:
        """Processes that npu-smi lists before this one touches the device."""
        return npu_environment.occupied()

    def state(self) -> Dict[str, Any]:
        """What npu-smi says of the device."""
        return npu_environment.state()

    def attachments(self) -> Dict[str, Any]:
        """Every version file as it is."""
        return {"version_files": npu_environment.version_files()}

    def open(self, threads: int) -> List[int]:
        """Select the device, allow internal formats, make the events. No CPU is pinned: threads enqueue."""
        torch = _import()
        torch.set_num_threads(threads)
        torch.npu.set_device(0)
        if not npu_environment.internal_formats_forbidden():
            torch.npu.config.allow_internal_format = True
        torch.npu.set_compile_mode(jit_compile=False)
        self._events = [torch.npu.Event(enable_timing=True) for _ in range(2)]
        return []

    def interference(self, pinned: List[int]) -> Interference:
        """Preemption of the enqueueing thread."""
        return Interference(None)

    def place(self, tensor: Any) -> Any:
        """A copy in device memory."""
        return tensor.npu()

    def quantised(self, x: Any) -> Tuple[Any, Any]:
        """On the host, so that no kernel of the preparation stands among those of the calls."""
        wide = x.float()
        scale = wide.abs().amax(-1) / INT8_MAX
        divisor = scale.masked_fill(scale == 0, 1.0).unsqueeze(-1)
        return self.place((wide / divisor).round().to(_import().int8)), self.place(scale)

    def arguments(self, operator: str, wanted: Dict[str, Any]) -> Dict[str, Any]:
        """By the schema that the installed torch_npu registers."""
        from schemas import fitted, installed_schema

        return fitted(installed_schema(operator), wanted)

    def run(self, batch: Sequence[Call]) -> Interval:
        """One event pair around the batch; the host's time is that of enqueueing alone."""
        start, end = self._events
        start.record()
        clock_ns = time.perf_counter_ns()
        for call in batch:
            call()
        enqueue_ns = time.perf_counter_ns() - clock_ns
        end.record()
        self.synchronise()  # an event completes although a kernel before it failed; the device says so
        device_ns = max(round(start.elapsed_time(end) * 1e6), 1)
        return Interval(device_ns, enqueue_ns, device_ns)

    def captured(self, calls: Sequence[Call]) -> List[Call]:
        """By ``torch.npu.NPUGraph``, after one eager call that creates what a capture must not create.

        Raises GraphsMissing.
        """
        torch = _import()
        calls[0]()
        self.synchronise()
        replays: List[Call] = []
        for call in calls:
            try:
                graph = torch.npu.NPUGraph()
                with torch.npu.graph(graph):
                    call()
            except (RuntimeError, AttributeError) as error:
                said = str(error).strip().splitlines() or [type(error).__name__]
                raise GraphsMissing(
                    f"torch.npu.NPUGraph captures nothing here ({said[0]}): measure launch mode eager"
                ) from error
            replays.append(graph.replay)
        self.synchronise()
        return replays

    def synchronise(self) -> None:
        """Wait for the device; raises what an earlier kernel failed with."""
        _import().npu.synchronize()

    def forget_dispatched(self) -> None:
        """Nothing is remembered here."""

    def dispatched(self, operator: str) -> Optional[str]:
        """Unknown until the profiler names the kernels."""
        return None

    def profile(
        self,
        points: Sequence[Mapping[str, Any]],
        prepare: Prepare,
        calls: int,
        folder: Path,
        guard: "Guard",
        counters: bool,
    ) -> Dict[str, Any]:
        """kernel_details.csv by torch_npu's own profiler."""
        from npu_profile import profile_points

        return profile_points(points, prepare, calls, folder, guard, counters)


def _import() -> Any:
    """torch, with torch_npu registered."""
    import torch
    import torch_npu  # noqa: F401

    return torch
