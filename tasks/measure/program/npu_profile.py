"""Kernel times by torch_npu.profiler, after all timing: kernel_details.csv, its whole folder left untouched.

Every point is set up before the window opens, so that it holds the kernels of the calls and nothing else, in
the order of the plan, each point in a profiler step of its own. The profiler may lose kernels at the head of
its window: calls of the first point that nobody asked for go first, in a step before the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from backends import Call, Prepare
from guard import Guard

LEAD_IN_CALLS = 2
DETAILS = "kernel_details.csv"


class ProfilerFailed(RuntimeError):
    """The profiler left no kernels; the message says where to look."""


def profile_points(
    points: Sequence[Mapping[str, Any]],
    prepare: Prepare,
    calls: int,
    folder: Path,
    guard: Guard,
    counters: bool,
) -> Dict[str, Any]:
    """Profile at Level1: no AI Core metrics for times, PipeUtilization for ``counters``.

    Steps need the host's activity; device durations do not depend on it. Returns how many lead-in calls of
    the first point precede the others, and that points have steps. Raises ProfilerFailed.
    """
    import torch
    from torch_npu import profiler

    batches = [_rotated(prepare(point).calls, calls) for point in points]
    metrics = profiler.AiCMetrics.PipeUtilization if counters else profiler.AiCMetrics.AiCoreNone
    config = profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1, aic_metrics=metrics)
    torch.npu.synchronize()
    with profiler.profile(
        activities=[profiler.ProfilerActivity.NPU, profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=0, warmup=0, active=1 + len(batches), repeat=1),
        record_shapes=False,
        with_stack=False,
        profile_memory=False,
        experimental_config=config,
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=True),
    ) as window:
        _execute(batches[0][:1] * LEAD_IN_CALLS)
        window.step()
        for batch in batches:
            guard.check()
            _execute(batch)
            window.step()
    if not list(folder.rglob(DETAILS)):
        raise ProfilerFailed(
            f"torch_npu.profiler left no {DETAILS}: is msprof on the PATH? See stdout.log and profiler/"
        )
    return {"profiler_lead_in_calls": LEAD_IN_CALLS, "profiler_step_a_point": True}


def _execute(batch: Sequence[Call]) -> None:
    import torch

    for call in batch:
        call()
    torch.npu.synchronize()


def _rotated(calls: Sequence[Call], count: int) -> List[Call]:
    return [calls[index % len(calls)] for index in range(count)]
