"""The plan file of one process: read, and refused with the field that is wrong before anything is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from method_version import METHOD_VERSION, SCHEMA_VERSION
from registry import AGENTS

Plan = Dict[str, Any]

TEXT_FIELDS = (
    "run_id", "experiment", "experiment_name", "plan_hash", "arm", "role", "kind", "agent", "lease_id",
    "method_hash", "lock_path",
)  # fmt: skip
WHOLE_FIELDS = ("schema_version", "process_index", "block", "seed")
AMOUNT_FIELDS = (
    "samples", "min_sample_ns", "max_point_ns", "warm_up_max_rounds", "profiled_calls", "discard_budget",
)  # fmt: skip
SHAPES_NEEDED = {
    "dynamic_quant": ("m_executed", "k"),
    "quant_linear": ("m_executed", "k", "n"),
    "quant_matmul": ("m_executed", "k", "n"),
    "tuple_input": ("m_executed", "k", "n"),
    "matmul": ("m_executed", "k", "n"),
    "grouped_matmul": ("m_executed", "k", "n", "local_experts"),
}
KINDS = {"cpu": ("timing",), "npu": ("timing", "tiling", "counters")}
EAGER, NPUGRAPH = "eager", "npugraph"
LAUNCH_MODES = {"cpu": (EAGER,), "npu": (EAGER, NPUGRAPH)}
_OF_ALL: Dict[str, Tuple[Any, ...]] = {
    "method_version": (METHOD_VERSION,),
    "cache": ("rotate_weights_2x_last_level_cache", "warm"),
    "launch_mode": (EAGER, "as each point says"),
    "activation": ("hot",),
}
METHOD_KNOWN: Mapping[str, Mapping[str, Tuple[Any, ...]]] = {
    "cpu": {
        "timer": ("perf_counter_ns",),
        "allocator": ("glibc keeps freed blocks up to 32 MiB",),
        "warm_up": ("last three rounds within 1 %",),
        "profiler": ("torch.profiler cpu after timing",),
        **_OF_ALL,
    },
    "npu": {
        "timer": ("event pair around a batch",),
        "warm_up": ("last three rounds within max(1 %, 2 ticks)",),
        "profiler": ("torch_npu.profiler Level1 AiCoreNone after timing",),
        "sustained_load": ("500 ms before the first sample",),
        "tenants": ("refuse", "flag"),
        **_OF_ALL,
    },
}


class PlanError(ValueError):
    """A plan that this program cannot execute; the message names file and field."""


def read_plan(path: Path) -> Plan:
    """Read and check one plan file. Raises PlanError."""
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanError(f"{path}: cannot be read: {error}") from error
    try:
        _check(plan)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from None
    return dict(plan)


def _check(plan: Any) -> None:
    if not isinstance(plan, dict):
        raise PlanError("not an object")
    for name in TEXT_FIELDS:
        _need(plan, name, str)
    for name in WHOLE_FIELDS:
        _need(plan, name, int)
    for name in ("build", "method", "amount", "env"):
        _need(plan, name, dict)
    _need(plan, "points", list)
    for name in plan["env"]:
        _need(plan["env"], name, str, "env.")
    if plan["schema_version"] != SCHEMA_VERSION:
        raise PlanError(f"schema_version: {plan['schema_version']} is not {SCHEMA_VERSION}")
    for name in ("label", "build_id"):
        _need(plan["build"], name, str, "build.")
    for name in AMOUNT_FIELDS:
        if _need(plan["amount"], name, int, "amount.") < (0 if name in AMOUNT_FIELDS[-2:] else 1):
            raise PlanError(f"amount.{name}: {plan['amount'][name]} is too small")
    _check_choices(plan)
    _check_points(plan["points"], plan["agent"], plan["method"]["launch_mode"])


def _check_choices(plan: Plan) -> None:
    if plan["kind"] not in KINDS.get(plan["agent"], ()):
        known = "; ".join(f"{agent}: {', '.join(KINDS[agent])}" for agent in AGENTS)
        raise PlanError(f"agent, kind: {plan['agent']}, {plan['kind']}; this program has {known}")
    method, known_method = plan["method"], METHOD_KNOWN[plan["agent"]]
    if _need(method, "threads", int, "method.") < 1:
        raise PlanError(f"method.threads: {method['threads']} is too small")
    for name, choices in known_method.items():
        if method.get(name) not in choices:
            raise PlanError(
                f"method.{name}: {method.get(name)!r} is not what this program does: "
                f"{', '.join(repr(value) for value in choices)}"
            )
    if unknown := sorted(set(method) - set(known_method) - {"threads"}):
        raise PlanError(f"method.{unknown[0]}: unknown")


def _check_points(points: List[Any], agent: str, launch_mode: str) -> None:
    if not points:
        raise PlanError("points: empty")
    seen = set()
    for index, point in enumerate(points):
        place = f"points[{index}]."
        if not isinstance(point, dict):
            raise PlanError(f"points[{index}]: not an object")
        if _need(point, "point_id", str, place) in seen:
            raise PlanError(f"{place}point_id: {point['point_id']} stands twice")
        seen.add(point["point_id"])
        operation = _need(point, "operation", str, place)
        if operation not in SHAPES_NEEDED:
            raise PlanError(f"{place}operation: {operation!r} is none of {', '.join(SHAPES_NEEDED)}")
        for name in SHAPES_NEEDED[operation]:
            if _need(point, name, int, place) < 1:
                raise PlanError(f"{place}{name}: {point[name]} is too small")
        _check_launch(point, agent, launch_mode, place)
        _check_point_choices(point, operation, place)


def _check_launch(point: Mapping[str, Any], agent: str, launch_mode: str, place: str) -> None:
    """Raises PlanError for a mode the agent has not, or an M that is not executed as its bucket."""
    mode, known = point.get("launch_mode"), LAUNCH_MODES[agent] if launch_mode != EAGER else (EAGER,)
    if mode not in known:
        raise PlanError(f"{place}launch_mode: {mode!r} is none of {', '.join(known)}")
    if mode == EAGER or point["operation"] == "grouped_matmul":
        return
    holding = [b for b in _need(point, "graph_buckets", list, place) if b >= _need(point, "m", int, place)]
    if min(holding, default=None) != point["m_executed"]:
        raise PlanError(
            f"{place}m_executed: {point['m_executed']} is not the smallest of {point['graph_buckets']} that "
            f"holds M {point['m']}"
        )


def _check_point_choices(point: Mapping[str, Any], operation: str, place: str) -> None:
    dtype = {"dynamic_quant": None, "matmul": "bfloat16"}.get(operation, "int8")
    allowed = ("int8", "bfloat16") if operation == "grouped_matmul" else (dtype,)
    if operation != "dynamic_quant" and point.get("dtype_w") not in allowed:
        raise PlanError(f"{place}dtype_w: {point.get('dtype_w')!r} is none of {allowed}")
    if operation != "dynamic_quant" and point.get("dtype_out") != "bfloat16":
        raise PlanError(f"{place}dtype_out: {point.get('dtype_out')!r} is not 'bfloat16'")
    if operation != "grouped_matmul":
        return
    counts = _need(point, "group_list", list, place)
    if len(counts) != point["local_experts"] or not all(isinstance(c, int) for c in counts):
        raise PlanError(f"{place}group_list: needs {point['local_experts']} integers")
    if point.get("group_list_type") not in (0, 1):
        raise PlanError(f"{place}group_list_type: {point.get('group_list_type')!r} is neither 0 nor 1")


def _need(record: Mapping[str, Any], name: str, kind: type, place: str = "") -> Any:
    value = record.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PlanError(f"{place}{name}: needs {kind.__name__}, not {value!r}")
    return value
