"""What an agent brings to the measuring program: its device, its operators, its clock and its profiler."""

from __future__ import annotations

from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

if TYPE_CHECKING:
    import torch
    from guard import Guard
    from interference import Interference
    from weights import WeightSet

Call = Callable[[], Any]


class Prepared(NamedTuple):
    """One point, ready to be called. ``calls`` has one call a weight copy; activations stay the same (hot).

    ``kernels`` says how often each operator runs in one call, the main operator's count included.
    ``timed`` is False where nothing stands alone to be timed.
    """

    calls: List[Call]
    main_operator: str
    kernels: Dict[str, int]
    x: torch.Tensor
    weights: Optional[WeightSet]
    timed: bool = True


Prepare = Callable[[Mapping[str, Any]], Prepared]


class Interval(NamedTuple):
    """One batch: its time by the agent's authority; on a device also the host's and the events' times."""

    interval_ns: int
    host_enqueue_ns: Optional[int] = None
    device_event_ns: Optional[int] = None


class Backend(Protocol):
    """One agent. Nothing here may import torch before ``open``; ``device`` and ``components`` may."""

    tick_ns: int
    proves_format: bool
    sustained_load_s: float

    def variables(self, kind: str, log_folder: Optional[Path]) -> Dict[str, str]:
        """Environment variables that must be set before torch is imported."""

    def device(self) -> Dict[str, Any]:
        """Device, class of comparable devices, cores, last level cache and what identifies it."""

    def components(self) -> Dict[str, str]:
        """Every component whose change makes another build."""

    def evidence(self) -> str:
        """``measured``, or ``simulated`` where no device executes."""

    def occupied(self) -> Optional[str]:
        """Who else is on the device, or None."""

    def state(self) -> Dict[str, Any]:
        """State of the device now, for ``environment.json``."""

    def attachments(self) -> Dict[str, Any]:
        """Raw version files and other text for ``environment.json``."""

    def open(self, threads: int) -> List[int]:
        """Make the operators usable; returns the CPUs that the process was pinned to."""

    def interference(self, pinned: List[int]) -> "Interference":
        """What notices disturbances of a sample."""

    def place(self, tensor: Any) -> Any:
        """``tensor`` on the device."""

    def quantised(self, x: Any) -> Tuple[Any, Any]:
        """INT8 and per-token scale of a host BF16 ``x``, on the device, prepared outside anything timed."""

    def arguments(self, operator: str, wanted: Dict[str, Any]) -> Dict[str, Any]:
        """Keyword arguments as the installed schema of ``operator`` takes them."""

    def run(self, batch: Sequence[Call]) -> Interval:
        """Execute a batch and time it."""

    def captured(self, calls: Sequence[Call]) -> List[Call]:
        """Every call captured into a graph of its own; calling the result replays it."""

    def synchronise(self) -> None:
        """Wait until everything enqueued has been executed."""

    def forget_dispatched(self) -> None:
        """Forget which kernels served."""

    def dispatched(self, operator: str) -> Optional[str]:
        """The kernel that served ``operator``; None where only the profiler can tell."""

    def profile(
        self,
        points: Sequence[Mapping[str, Any]],
        prepare: Prepare,
        calls: int,
        folder: Path,
        guard: "Guard",
        counters: bool,
    ) -> Dict[str, Any]:
        """Call every point ``calls`` times under the profiler; returns facts for ``capture.json``."""
