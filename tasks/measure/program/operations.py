"""The operations of the experiments: what is set up once, and the call that is timed, as serving makes it."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Tuple

import torch
from backends import Backend, Call, Prepared
from operators import DYNAMIC_QUANT, GROUPED_MATMUL, MM, QUANT_MATMUL
from random_matrix import DTYPES, random_matrix, seed_of
from weights import Weights

Point = Mapping[str, Any]


def prepare(point: Point, weights: Weights, seed: int, backend: Backend) -> Prepared:
    """Set ``point`` up. Raises what the operators raise. Activations depend on ``seed`` and point alone."""
    shape = (point["m_executed"], point["k"])
    x = random_matrix("bfloat16", shape, seed_of(seed, point["point_id"]))
    return _BUILDERS[point["operation"]](point, x, weights, backend)


def quantise(x: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    """INT8 activation and per-token scale: a tuple already is both, anything else is quantised here."""
    quantised, scale = x if isinstance(x, tuple) else torch.ops.npu.npu_dynamic_quant(x)
    return quantised, scale


def quant_linear(x: Any, weight: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
    """A W8A8 linear with dynamic per-token quantisation; ``x`` is BF16, or the tuple (INT8, scale)."""
    dtype = torch.bfloat16 if isinstance(x, tuple) else x.dtype
    quantised, pertoken_scale = quantise(x)
    return torch.ops.npu.npu_quant_matmul(
        quantised,
        weight,
        weight_scale,
        pertoken_scale=pertoken_scale.flatten(),
        bias=None,
        output_dtype=dtype,
    )


def grouped_matmul(x: torch.Tensor, weight: torch.Tensor, arguments: Dict[str, Any]) -> torch.Tensor:
    """The experts' matmul: one x, one weight, the rest by ``arguments``."""
    return torch.ops.npu.npu_grouped_matmul(x=[x], weight=[weight], **arguments)[0]


def _dynamic_quant(point: Point, x: torch.Tensor, weights: Weights, backend: Backend) -> Prepared:
    x = backend.place(x)
    calls: List[Call] = [partial(torch.ops.npu.npu_dynamic_quant, x)]
    return Prepared(calls, DYNAMIC_QUANT, {DYNAMIC_QUANT: 1}, x, None)


def _quant_linear(point: Point, x: torch.Tensor, weights: Weights, backend: Backend) -> Prepared:
    x = backend.place(x)
    loaded, scale = weights.get(point), backend.place(_weight_scale(point))
    calls: List[Call] = [partial(quant_linear, x, w, scale) for w in loaded.copies]
    return Prepared(calls, QUANT_MATMUL, {DYNAMIC_QUANT: 1, QUANT_MATMUL: 1}, x, loaded)


def _quant_matmul(point: Point, x: torch.Tensor, weights: Weights, backend: Backend) -> Prepared:
    loaded, scale, pair = weights.get(point), backend.place(_weight_scale(point)), backend.quantised(x)
    calls: List[Call] = [partial(quant_linear, pair, w, scale) for w in loaded.copies]
    return Prepared(calls, QUANT_MATMUL, {QUANT_MATMUL: 1}, pair[0], loaded)


def _tuple_input(point: Point, x: torch.Tensor, weights: Weights, backend: Backend) -> Prepared:
    return _quant_matmul(point, x, weights, backend)._replace(timed=False)


def _matmul(point: Point, x: torch.Tensor, weights: Weights, backend: Backend) -> Prepared:
    x = backend.place(x)
    loaded = weights.get(point)
    calls: List[Call] = [partial(torch.matmul, x, w) for w in loaded.copies]
    return Prepared(calls, MM, {MM: 1}, x, loaded)


def _grouped_matmul(point: Point, x: torch.Tensor, weights: Weights, backend: Backend) -> Prepared:
    """As serving calls it: one output, rows by the group list; scales for INT8, a hint where asked for."""
    loaded = weights.get(point)
    wanted: Dict[str, Any] = {
        "split_item": 2,
        "group_type": 0,
        "group_list_type": point["group_list_type"],
        "group_list": backend.place(torch.tensor(point["group_list"], dtype=torch.int64)),
        "output_dtype": DTYPES[point["dtype_out"]],
    }
    if point.get("tuning_config") is not None:
        wanted["tuning_config"] = [point["tuning_config"]]
    if point["dtype_w"] == "int8":
        x, pertoken_scale = backend.quantised(x)
        wanted["scale"] = [backend.place(_weight_scale(point))]
        wanted["per_token_scale"] = [pertoken_scale]
    else:
        x = backend.place(x)
    arguments = backend.arguments(GROUPED_MATMUL, wanted)
    calls: List[Call] = [partial(grouped_matmul, x, w, arguments) for w in loaded.copies]
    return Prepared(calls, GROUPED_MATMUL, {GROUPED_MATMUL: 1}, x, loaded)


def _weight_scale(point: Point) -> torch.Tensor:
    """BF16 per column, and per expert where there are experts, of the size that keeps outputs near 1."""
    experts = point.get("local_experts")
    shape = (point["n"],) if experts is None else (experts, point["n"])
    return torch.linspace(0.5, 1.5, point["n"]).div(point["k"]).expand(shape).to(torch.bfloat16).contiguous()


_BUILDERS: Dict[str, Callable[[Point, torch.Tensor, Weights, Backend], Prepared]] = {
    "dynamic_quant": _dynamic_quant,
    "quant_linear": _quant_linear,
    "quant_matmul": _quant_matmul,
    "tuple_input": _tuple_input,
    "matmul": _matmul,
    "grouped_matmul": _grouped_matmul,
}
