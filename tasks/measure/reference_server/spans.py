"""Named ranges of a step, so that a profile tells what each part of it cost.

A step is ``step[EXTEND bs=N]`` or ``step[DECODE bs=N]``; inside it lie ranges ``<category>:<part>``, for
example ``dense:layers.0.wq_a``, which neither nest nor overlap: what no range covers is host time between
kernels. Categories are norm, attention, dense, router, dispatch, expert, combine, residual, quant and other.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ContextManager

_recording = False
_NOTHING: ContextManager[Any] = nullcontext()


def record(on: bool) -> None:
    """Whether ranges are recorded; where they are not, they cost nothing to speak of."""
    global _recording
    _recording = on


def span(category: str, part: str) -> ContextManager[Any]:
    """The range ``category:part``."""
    return _range(f"{category}:{part}") if _recording else _NOTHING


def step_span(stage: str, requests: int) -> ContextManager[Any]:
    """The range of one step of ``stage``, EXTEND or DECODE."""
    return _range(f"step[{stage} bs={requests}]") if _recording else _NOTHING


def _range(name: str) -> ContextManager[Any]:
    from torch.autograd.profiler import record_function

    entered: ContextManager[Any] = record_function(name)
    return entered
