"""One measuring process under the device lock: from an empty folder to the manifest."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Optional

import documents
import machine
from capture_files import CaptureFolder
from guard import Guard
from plan_file import Plan

if TYPE_CHECKING:
    from points import Measurement

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
AUTOLOAD_VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"


class BuildChanged(RuntimeError):
    """The software that would be measured is not the one that the plan was made for."""


class Process:
    """Measures one plan. ``tell`` receives the events ``started`` and ``point``."""

    def __init__(self, plan: Plan, capture: Path, guard: Guard, tell: Callable[..., None]) -> None:
        self._plan = plan
        self._guard = guard
        self._tell = tell
        self._started_ns = time.time_ns()
        self._folder = CaptureFolder(capture)
        self._device = machine.device()
        self._phases: Dict[str, int] = {}

    def run(self) -> Optional[str]:
        """Measure, write the documents and the manifest; returns why the process failed, or None.

        Raises Stopped and BuildChanged, and then leaves no manifest.
        """
        self._folder.document("plan.json", self._plan)
        self._tell("started", points=len(self._plan["points"]))
        _redirect_output(self._folder.path)
        before = machine.Neighbours()
        threads = self._plan["method"]["threads"]
        prepare_environment(self._plan["env"], threads)
        pinned = machine.pin(threads)
        components = self._checked_build()
        measurement = self._measurement(pinned[0] if pinned else None)
        self._guard.only_between_samples()
        start = machine.Neighbours()
        reason = self._measure(measurement)
        end = machine.Neighbours()
        self._folder.rows("points.jsonl", measurement.records)
        environment = documents.environment(self._plan, self._device, components)
        environment["pinned_cpus"] = pinned
        environment["interference_sources"] = measurement.sampler.interference.sources
        environment["tenants"] = documents.tenants(before, start, end, machine.Neighbours())
        self._folder.document("environment.json", environment)
        variables = _recorded_variables(self._plan["env"])
        capture = documents.capture(self._plan, measurement, reason, variables)
        capture.update(started_ns=self._started_ns, ended_ns=time.time_ns(), phases=self._phases)
        self._folder.document("capture.json", capture)
        self._guard.check()
        _end_output()
        self._folder.finish()
        return reason

    def _checked_build(self) -> Dict[str, str]:
        clock_ns = time.perf_counter_ns()
        import build

        components = build.components()
        self._phase("import_ns", clock_ns)
        planned, found = self._plan["build"]["build_id"], build.build_id(components)
        if planned != found:
            raise BuildChanged(f"build changed: the plan is for {planned}, this is {found}: {components}")
        return components

    def _measurement(self, cpu: Optional[int]) -> "Measurement":
        import cpu_kernels
        import torch
        from interference import Interference
        from points import Measurement
        from sampling import Sampler
        from weights import Weights

        torch.set_num_threads(self._plan["method"]["threads"])
        cpu_kernels.register()
        warm = self._plan["method"]["cache"] == "warm"
        rotation_bytes = 0 if warm else 2 * int(self._device["last_level_cache_bytes"])
        weights = Weights(self._plan["seed"], rotation_bytes)
        sampler = Sampler(self._plan["amount"], self._guard, Interference(cpu))
        return Measurement(self._plan, weights, sampler, self._folder)

    def _measure(self, measurement: "Measurement") -> Optional[str]:
        """All points, then the profiler; returns why this ended early, or None."""
        import torch
        from profiled import profile_points

        points, calls = self._plan["points"], self._plan["amount"]["profiled_calls"]
        clock_ns = time.perf_counter_ns()
        try:
            with torch.inference_mode():
                for order in range(len(points)):
                    measurement.take(order)
                    self._phase("points_ns", clock_ns)
                    seconds = round(self._phases["points_ns"] / 1e9, 3)
                    self._tell("point", done=order + 1, total=len(points), seconds=seconds)
                clock_ns = time.perf_counter_ns()
                if calls:
                    folder = self._folder.path / "profiler"
                    profile_points(points, measurement.prepare, calls, folder, self._guard)
                measurement.profiled(calls)
                self._phase("profile_ns", clock_ns)
        except Exception as error:
            traceback.print_exc()
            return str(error) or type(error).__name__
        return None

    def _phase(self, name: str, since_ns: int) -> None:
        self._phases[name] = time.perf_counter_ns() - since_ns


def prepare_environment(variables: Dict[str, str], threads: int) -> None:
    """Set the variables that torch reads when it is imported."""
    os.environ[AUTOLOAD_VARIABLE] = "0"  # torch_npu without CANN breaks the import of torch itself
    os.environ.update({name: str(threads) for name in THREAD_VARIABLES})
    os.environ.update(variables)


def _recorded_variables(variables: Dict[str, str]) -> Dict[str, str]:
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
