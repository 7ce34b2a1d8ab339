"""Profile by stage: one Chrome trace of consecutive steps for prefill, one for decode.

Names as SGLang gives them: ``<profile id>-TP-0-EXTEND.trace.json.gz`` and ``-DECODE``. The first step of a
stage opens its trace; it closes after the steps asked for, or when the first step of the other stage comes.
Steps of the other stage that come later have no range. Host operators inside a reference kernel are not
recorded: on a device a kernel has no inside.
"""

from __future__ import annotations

import gzip
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ContextManager, Dict, List, Optional

import spans
from batching import DECODE, EXTEND

STAGES = (EXTEND, DECODE)


class ProfileError(ValueError):
    """A start or stop that cannot be now; the message says why."""


class StageProfile:
    """Used by the engine's thread; ``start`` and ``stop`` between steps only."""

    def __init__(self) -> None:
        self._folder: Optional[Path] = None
        self._profile_id = ""
        self._left: Dict[str, int] = {}
        self._open: Optional[str] = None
        self._profiler: Any = None
        self.files: List[str] = []

    @property
    def active(self) -> bool:
        """Whether a stage is being recorded or waited for."""
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
        """Close what is open and wait for nothing more; returns the files. Raises ProfileError."""
        if not self.active:
            raise ProfileError("no profile is in progress")
        self._close()
        self._left = {}
        return self.files

    def before_step(self, stage: str) -> None:
        """Open or close traces as the coming step asks."""
        if self._open and self._open != stage and stage in self._left:
            self._close()
        if stage in self._left and not self._open:
            self._begin(stage)

    def step(self, stage: str, requests: int) -> ContextManager[Any]:
        """The range of a step."""
        return spans.step_span(stage, requests) if self._open == stage else nullcontext()

    def after_step(self, stage: str) -> None:
        """Count a recorded step, and close its trace after the last one."""
        if self._open == stage:
            self._left[stage] -= 1
            if not self._left[stage]:
                self._close()

    def _begin(self, stage: str) -> None:
        from torch.autograd.profiler import profile

        self._profiler = profile(use_kineto=True, record_shapes=True)
        self._profiler.__enter__()
        self._record(True)
        self._open = stage

    def _close(self) -> None:
        if self._open is None or self._folder is None:
            return
        self._record(False)
        self._profiler.__exit__(None, None, None)
        path = self._folder / f"{self._profile_id}-TP-0-{self._open}.trace.json.gz"
        _export(self._profiler, path)
        print(f"profile: wrote {path}", flush=True)
        self.files.append(path.name)
        self._left.pop(self._open, None)
        self._open, self._profiler = None, None

    @staticmethod
    def _record(on: bool) -> None:
        import cpu_kernels

        spans.record(on)
        cpu_kernels.record_inside(not on)


def _export(profiler: Any, path: Path) -> None:
    """The trace under its name only when it is whole."""
    plain, packed = path.with_suffix(".partial"), path.with_suffix(".gz.partial")
    profiler.export_chrome_trace(str(plain))
    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target)
    plain.unlink()
    packed.replace(path)
