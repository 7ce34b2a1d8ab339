"""Profile by stage: one Chrome trace of prefill steps, one of decode steps, from one recording.

Names as SGLang gives them: ``<profile id>-TP-0-EXTEND.trace.json.gz`` and ``-DECODE``. Recording begins with
the first step of either stage and ends when each has had its steps, or on request. Only those steps are
recorded: what lies between them is not, nor are the host operators inside a reference kernel, because on a
device a kernel has no inside.
"""

from __future__ import annotations

import bisect
import gzip
import json
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import cpu_kernels
import spans
import torch
from batching import DECODE, EXTEND

STAGES = (EXTEND, DECODE)
STEP = "step["


class ProfileError(ValueError):
    """A start or stop that cannot be now; the message says why."""


class StageProfile:
    """Used by the engine's thread; ``start`` and ``stop`` between steps only."""

    def __init__(self) -> None:
        self._folder = Path()
        self._profile_id = ""
        self._left: Dict[str, int] = {}
        self._profiler: Any = None
        self.files: List[str] = []

    @property
    def active(self) -> bool:
        """Whether steps are being recorded or waited for."""
        return bool(self._left)

    def start(self, folder: Path, steps: int) -> None:
        """Record the next ``steps`` steps of each stage into ``folder``. Raises ProfileError, OSError."""
        if self.active:
            raise ProfileError("a profile is already in progress; stop it first")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._profile_id = folder, f"{time.time():.6f}"
        self._left = dict.fromkeys(STAGES, steps)
        self.files = []

    def stop(self) -> List[str]:
        """End the recording and write what it has; returns the files. Raises ProfileError, OSError."""
        if not self.active:
            raise ProfileError("no profile is in progress")
        self._left = {}
        if self._profiler is not None:
            self._write()
        return self.files

    def before_step(self, stage: str) -> None:
        """Open the recording with the first step, and let it see the coming step if that is wanted."""
        if not self.active:
            return
        if self._profiler is None:
            from torch.autograd.profiler import profile

            self._profiler = profile(use_kineto=True, record_shapes=True)
            self._profiler.__enter__()
        _see(bool(self._left[stage]))

    def after_step(self, stage: str) -> None:
        """Count a recorded step, and write after the last one."""
        if not self.active:
            return
        _see(False)
        self._left[stage] = max(self._left[stage] - 1, 0)
        if not any(self._left.values()):
            self.stop()

    def _write(self) -> None:
        """Both traces, each under its name only when it is whole."""
        _see(None)
        profiler, self._profiler = self._profiler, None
        profiler.__exit__(None, None, None)
        whole = self._folder / f"{self._profile_id}.partial"
        profiler.export_chrome_trace(str(whole))
        trace = json.loads(whole.read_text(encoding="utf-8"))
        whole.unlink()
        for stage in STAGES:
            if part := of_stage(trace["traceEvents"], stage):
                path = self._folder / f"{self._profile_id}-TP-0-{stage}.trace.json.gz"
                packed = path.with_suffix(".partial")
                with gzip.open(packed, "wt", encoding="utf-8", compresslevel=1) as target:
                    json.dump({**trace, "traceEvents": part}, target)
                packed.replace(path)
                print(f"profile: wrote {path}", flush=True)
                self.files.append(path.name)


def of_stage(events: List[Dict[str, Any]], stage: str) -> List[Dict[str, Any]]:
    """The events that begin inside a step of ``stage``, and those without duration; empty without a step."""
    steps: List[Tuple[float, float]] = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith(f"{STEP}{stage} ")
    )
    begins = [step[0] for step in steps]

    def inside(event: Dict[str, Any]) -> bool:
        at = bisect.bisect_right(begins, event["ts"]) - 1
        return at >= 0 and event["ts"] <= steps[at][1]

    return [e for e in events if e["ph"] != "X" or inside(e)] if steps else []


def _see(steps: Optional[bool]) -> None:
    """True: the profiler sees what runs from here on; False: it does not; None: there is none any more."""
    torch._C._autograd._enable_record_function(steps is not False)
    cpu_kernels.record_inside(not steps)
    spans.record(bool(steps))
