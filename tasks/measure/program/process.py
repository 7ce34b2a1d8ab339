"""One measuring process under the device lock: from an empty folder to the manifest."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional

import documents
import machine
from capture_files import CaptureFolder
from guard import Guard
from plan_file import Plan
from registry import backend_of

if TYPE_CHECKING:
    from points import Measurement

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
AUTOLOAD_VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"


class BuildChanged(RuntimeError):
    """The software that would be measured is not the one that the plan was made for."""


class DeviceOccupied(RuntimeError):
    """Someone else is on the device, and the method refuses to measure beside them."""


class LogMissing(RuntimeError):
    """A tiling process that left no log."""


class Process:
    """Measures one plan. ``tell`` receives the events ``started`` and ``point``."""

    def __init__(self, plan: Plan, capture: Path, guard: Guard, tell: Callable[..., None]) -> None:
        self._plan = plan
        self._guard = guard
        self._tell = tell
        self._started_ns = time.time_ns()
        self._clock_ns = time.monotonic_ns()
        self._folder = CaptureFolder(capture)
        self._backend = backend_of(plan["agent"])
        self._profile_facts: Dict[str, Any] = {}
        self._phases: Dict[str, int] = {}

    def run(self) -> Optional[str]:
        """Measure, write the documents and the manifest; returns why the process failed, or None.

        Raises Stopped, BuildChanged and DeviceOccupied, and then leaves no manifest.
        """
        self._folder.document("plan.json", self._plan)
        self._tell("started", points=len(self._plan["points"]))
        _redirect_output(self._folder.path)
        before = machine.Neighbours()
        threads = self._plan["method"]["threads"]
        switches = self._backend.variables(self._plan["kind"], self._folder.path / "log")
        prepare_environment(self._plan["env"], threads, switches)
        states = {"before": self._unoccupied()}
        clock_ns = time.perf_counter_ns()
        pinned = self._backend.open(threads)
        components = self._checked_build(clock_ns)
        device = self._backend.device()
        measurement = self._measurement(pinned, device)
        self._guard.only_between_samples()
        start = machine.Neighbours()
        states["start"] = self._backend.state()
        reason = self._measure(measurement)
        states["end"] = self._backend.state()
        end = machine.Neighbours()
        self._folder.rows("points.jsonl", measurement.records)
        environment = documents.environment(self._plan, device, components)
        environment["pinned_cpus"] = pinned
        environment["interference_sources"] = measurement.sampler.interference.sources
        environment["tenants"] = documents.tenants(before, start, end, machine.Neighbours())
        environment.update(self._backend.attachments())
        if any(states.values()):
            environment["device_states"] = states
        self._folder.document("environment.json", environment)
        variables = _recorded_variables([*self._plan["env"], *switches])
        evidence = self._backend.evidence()
        capture = documents.capture(self._plan, measurement, reason, variables, evidence)
        capture.update(self._profile_facts)
        # A system clock that is set back meanwhile must not let a capture end before it began.
        ended_ns = self._started_ns + time.monotonic_ns() - self._clock_ns
        capture.update(started_ns=self._started_ns, ended_ns=ended_ns, phases=self._phases)
        self._folder.document("capture.json", capture)
        self._guard.check()
        _end_output()
        self._folder.finish()
        return reason

    def _unoccupied(self) -> Dict[str, Any]:
        """State of the device before it is touched, with who shares it.

        Raises DeviceOccupied where the method says so.
        """
        tenants = self._backend.occupied()
        if tenants and self._plan["method"].get("tenants") == "refuse":
            raise DeviceOccupied(
                f"the device is in use: {tenants}; wait, or set TILEWATCH_TENANTS=flag to measure beside them"
            )
        return {**self._backend.state(), **({"shared_with": tenants} if tenants else {})}

    def _checked_build(self, clock_ns: int) -> Dict[str, str]:
        import build

        components = self._backend.components()
        self._phase("import_ns", clock_ns)
        planned, found = self._plan["build"]["build_id"], build.build_id(components)
        if planned != found:
            raise BuildChanged(f"build changed: the plan is for {planned}, this is {found}: {components}")
        return components

    def _measurement(self, pinned: List[int], device: Mapping[str, Any]) -> "Measurement":
        from points import Measurement
        from sampling import Sampler
        from weights import Weights

        backend = self._backend
        warm = self._plan["method"]["cache"] == "warm"
        rotation_bytes = 0 if warm else 2 * int(device["last_level_cache_bytes"])
        weights = Weights(self._plan["seed"], rotation_bytes, backend.place)
        interference = backend.interference(pinned)
        sampler = Sampler(self._plan["amount"], self._guard, interference, backend.run, backend.tick_ns)
        return Measurement(self._plan, backend, weights, sampler, self._folder)

    def _measure(self, measurement: "Measurement") -> Optional[str]:
        """All points, then the profiler; returns why this ended early, or None."""
        import torch

        points, calls = self._plan["points"], self._plan["amount"]["profiled_calls"]
        clock_ns = time.perf_counter_ns()
        try:
            with torch.inference_mode():
                for order in range(len(points)):
                    measurement.take(order)
                    self._phase("points_ns", clock_ns)
                    seconds = round(self._phases["points_ns"] / 1e9, 3)
                    self._tell("point", done=order + 1, total=len(points), seconds=seconds)
                if self._plan["kind"] == "tiling":
                    _check_log(self._folder.path / "log")
                else:
                    self._profile(measurement, calls)
        except Exception as error:
            traceback.print_exc()
            return str(error) or type(error).__name__
        return None

    def _profile(self, measurement: "Measurement", calls: int) -> None:
        clock_ns = time.perf_counter_ns()
        if calls:
            folder, counters = self._folder.path / "profiler", self._plan["kind"] == "counters"
            self._profile_facts = self._backend.profile(
                self._plan["points"], measurement.prepare, calls, folder, self._guard, counters
            )
        measurement.profiled(calls)
        self._phase("profile_ns", clock_ns)

    def _phase(self, name: str, since_ns: int) -> None:
        self._phases[name] = time.perf_counter_ns() - since_ns


def prepare_environment(variables: Dict[str, str], threads: int, switches: Mapping[str, str]) -> None:
    """Set what torch and CANN read when they are loaded: the backend's ``switches``, then the plan's own."""
    os.environ[AUTOLOAD_VARIABLE] = "0"  # torch_npu without CANN breaks the import of torch itself
    os.environ.update({name: str(threads) for name in THREAD_VARIABLES})
    os.environ.update(switches)
    os.environ.update(variables)


def _check_log(folder: Path) -> None:
    """Raises LogMissing where a tiling process left nothing to read."""
    if not any(path.stat().st_size for path in folder.rglob("*.log")):
        raise LogMissing(f"no log was written below {folder}: is it writable, and are the log levels heeded?")


def _recorded_variables(variables: Iterable[str]) -> Dict[str, str]:
    """The variables that shape a measurement, never the whole environment: it may hold credentials."""
    names = [*THREAD_VARIABLES, AUTOLOAD_VARIABLE, "LD_PRELOAD", "LD_LIBRARY_PATH", *variables]
    return {name: os.environ[name] for name in names if name in os.environ}


def _redirect_output(folder: Path) -> None:
    """From here on stdout and stderr of Python and of every library go into the capture."""
    for stream, name in ((sys.stdout, "stdout.log"), (sys.stderr, "stderr.log")):
        stream.flush()
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)


def _end_output() -> None:
    """Close the logs for good: nothing may be written once their size is in the manifest."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
