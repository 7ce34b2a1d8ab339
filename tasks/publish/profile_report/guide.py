"""What to collect so that two profiles answer most, and what a given profile cannot answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Advice:
    """One setting, its value and what it is for."""

    setting: str
    value: str
    why: str


ADVICE = (
    Advice(
        "profiler_level",
        "Level1",
        "shapes, dtypes, formats and core counts; Level0 has none, Level2 is slower",
    ),
    Advice(
        "aic_metrics",
        "AiCoreNone for times",
        "counters cost time; PipeUtilization in a second profile says why",
    ),
    Advice("record_shapes", "True", "kernels are matched by shape"),
    Advice(
        "with_stack, profile_memory, with_modules", "False", "they slow the host: idle time is then theirs"
    ),
    Advice(
        "schedule",
        "wait=1, warmup=5, active=10 or more",
        "5 steps a side are the least for a verdict by steps",
    ),
    Advice("prof.step()", "once a decode step", "marks the steps; without it repetitions are searched for"),
    Advice("l2_cache, record_op_args, sys_io", "False", "none of it is compared"),
    Advice("export_type", "Text (or Db)", "either is read; Db is smaller with many ranks"),
    Advice(
        "load", "the same batch and lengths on both sides", "another M is another kernel and another tiling"
    ),
    Advice(
        "captures",
        "5 a side, each from a fresh start",
        "only then a verdict reaches beyond one pair of captures",
    ),
)
"""What to set in torch_npu.profiler, whoever starts it."""

TORCH_NPU = """import torch_npu
from torch_npu.profiler import AiCMetrics, ExportType, ProfilerActivity, ProfilerLevel, profile, schedule

config = torch_npu.profiler._ExperimentalConfig(
    profiler_level=ProfilerLevel.Level1, aic_metrics=AiCMetrics.AiCoreNone, export_type=[ExportType.Text])
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU],
             schedule=schedule(wait=1, warmup=5, active=10, repeat=1),
             on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("before"),
             record_shapes=True, with_stack=False, profile_memory=False, experimental_config=config) as prof:
    for _ in range(16):
        decode_one_step()
        prof.step()
"""
SGLANG = """export SGLANG_TORCH_PROFILER_DIR=$PWD/before     # before the server starts
# with the server under the load that is asked about:
curl -X POST http://HOST:PORT/start_profile -H 'Content-Type: application/json' \\
     -d '{"num_steps": 10, "record_shapes": true, "with_stack": false, "activities": ["CPU", "GPU"]}'
"""
VLLM_ASCEND = """vllm serve MODEL --profiler-config '{"profiler": "torch",
    "torch_profiler_dir": "/abs/before",
    "torch_profiler_with_stack": false, "torch_profiler_record_shapes": true}'
# before vLLM 0.13: export VLLM_TORCH_PROFILER_DIR=/abs/before
# with the server under the load that is asked about; stop after some ten decode steps:
curl -X POST http://HOST:PORT/start_profile; sleep 1; curl -X POST http://HOST:PORT/stop_profile
# if a folder has no ASCEND_PROFILER_OUTPUT: python -c 'from torch_npu.profiler.profiler import analyse;
# analyse("/abs/before")'
"""
RECIPES = (("torch_npu", TORCH_NPU), ("SGLang", SGLANG), ("vllm-ascend", VLLM_ASCEND))
"""How each of them is started. Names of settings differ between releases: the server's own help decides."""


def guide() -> str:
    """The settings with their reasons, then a recipe for each of the three, as text."""
    width = max(len(one.setting) for one in ADVICE)
    value = max(len(one.value) for one in ADVICE)
    rows = [f"  {one.setting:{width}}  {one.value:{value}}  {one.why}" for one in ADVICE]
    recipes = [
        f"{name}:\n\n" + "".join(f"    {line}\n" for line in text.splitlines()) for name, text in RECIPES
    ]
    return "\n".join(["What to set:", *rows, "", *recipes, "Then: tilewatch compare before/ after/"])


def cannot_answer(facts: Mapping[str, Any], settings: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """What this profile cannot answer, and which setting would; empty where it answers all.

    ``facts`` and ``settings`` as the description files give them; ``columns`` are those of its kernels that
    hold a value.
    """
    found = []
    if str(facts.get("profiler_level")) == "Level0" or "op_type" not in columns:
        found.append("no operator types: kernels cannot be matched by shape; profiler_level=Level1")
    elif "input_shapes" not in columns:
        found.append("no shapes: linears and causes by shape are unknown; record_shapes=True")
    if "block_dim" not in columns:
        found.append("no core counts: fewer cores cannot be named, nor predictions checked; Level1")
    if "step_id" not in columns:
        found.append("no marked steps: repetitions are searched for; call prof.step() once a step")
    for key, words in (("with_stack", "stacks"), ("profile_memory", "memory")):
        if settings.get(f"config.common_config.{key}") is True:
            found.append(f"{words} were recorded: idle time is partly the profiler's; {key}=False")
    if "start_ns" not in columns:
        found.append("no start times: no order, no steps, no idle time; Level1 with NPU activity")
    return found
