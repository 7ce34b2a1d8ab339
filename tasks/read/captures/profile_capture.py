"""One profile of somebody's program: its kernels from one source, and how it was collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class ProfileCapture:
    """What one profiler run on one device left.

    ``kernels`` keeps the contract of that name. ``settings`` are the values of the profiler's own description
    files by dotted key; ``facts`` name level, metrics, chip, cores and versions where those files do.
    ``refused`` counts rows that could not be read; ``notes`` say what else a reader should know.
    """

    name: str
    kernels: pa.Table
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    refused: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProfileSide:
    """The captures of one side of a comparison: repeats of one program, or with ``ranks`` ranks of one run.

    ``why`` says what they were taken for and what shows that.
    """

    captures: tuple[ProfileCapture, ...]
    ranks: bool = False
    why: str = "one capture"
