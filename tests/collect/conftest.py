"""A capture folder as the measuring program leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewatch.tasks.collect import write_manifest


@pytest.fixture
def new_capture(tmp_path: Path) -> Callable[..., Path]:
    """Makes a capture folder; ``label`` is its build's, ``large_bytes`` the size of its profiler output."""

    def make(name: str = "capture", label: str = "cpu-torch2.13.0", large_bytes: int = 1000) -> Path:
        folder = tmp_path / name
        (folder / "profiler" / "deep").mkdir(parents=True)
        (folder / "capture.json").write_text(json.dumps({"experiment": "B", "build": {"label": label}}))
        (folder / "samples.jsonl").write_text('{"sample": 0, "duration_ns": 1200}\n')
        (folder / "stdout.log").write_text("")
        (folder / "profiler" / "deep" / "trace ü.bin").write_bytes(b"\x00\xff" * (large_bytes // 2))
        write_manifest(folder)
        return folder

    return make
