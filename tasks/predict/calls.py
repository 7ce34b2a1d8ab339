"""Typed operator calls: what host tiling sees of one launch, checked before any rule runs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from hashlib import sha256

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import BoolArray, IntArray, ints
from tilewatch.tasks.predict.errors import OutOfScope, PredictError

ND = "ND"
NZ = "FRACTAL_NZ"
FORMATS = (ND, NZ)
NZ_ROWS = 16
NZ_COLUMNS_INT8 = 32


@dataclass(frozen=True)
class DynamicQuantCall:
    """``npu_dynamic_quant`` per token on x[m, k]; m is the product of all dimensions but the last.

    ``smooth``: a smooth-scale input; ``asymmetric``: an offset output is asked for (operator DynamicQuantV2
    on NpuArch 2201); ``group_num``: rows of the smooth scale selected by group_index, 0 without one.
    """

    m: int
    k: int
    x_dtype: str = "bfloat16"
    y_dtype: str = "int8"
    smooth: bool = False
    asymmetric: bool = False
    group_num: int = 0

    op_type = "DynamicQuant"
    operation = "dynamic_quant"
    axes = ("m", "k")


@dataclass(frozen=True)
class QuantMatmulCall:
    """``npu_quant_matmul``, int8 × int8 with a per-channel scale[n] and a float32 per-token scale[m].

    ``transpose_x`` and ``transpose_w`` are the operator's attributes: the weight is [k, n], or [n, k] when
    transposed. ``bias_dtype`` None means no bias. ``batch`` is the number of weight matrices.
    """

    m: int
    k: int
    n: int
    weight_format: str = NZ
    x_format: str = ND
    transpose_x: bool = False
    transpose_w: bool = False
    out_dtype: str = "bfloat16"
    scale_dtype: str = "float32"
    bias_dtype: str | None = None
    batch: int = 1

    op_type = "QuantBatchMatmulV3"
    operation = "quant_matmul"
    axes = ("m", "k", "n")


@dataclass(frozen=True)
class GroupedMatmulCall:
    """``npu_grouped_matmul`` int8 × int8. ``m`` is the *allocated* rows of x, padding included.

    ``groups`` is the number of experts (weight.shape[0]). Host tiling never reads the group list; the work
    per expert and the rounds do: ``group_list`` is the rows of every expert, or ``m_e`` those of each of
    ``busy_groups`` experts (all of them where that is None). ``tuning_config`` is the first element of the
    attribute (0: absent), ``workspace_allowance`` its third (bytes, -1 unlimited). ``group_list_type``:
    0 cumsum, 1 count, 2 sparse. ``act_type`` 2 is GELU. ``single_tensors`` False: x or weight come as several
    tensors. Along the axis m_e, ``exact_rows`` makes m follow it (no padding, every expert as full) and
    ``hint_m_e`` the tuning hint.
    """

    m: int
    k: int
    n: int
    groups: int
    weight_format: str = NZ
    transpose_x: bool = False
    transpose_w: bool = False
    out_dtype: str = "bfloat16"
    scale_dtype: str = "bfloat16"
    per_token_scale: bool = True
    bias: bool = False
    split_item: int = 2
    group_type: int = 0
    group_list_type: int = 1
    act_type: int = 0
    tuning_config: int = 0
    workspace_allowance: int = 0
    single_tensors: bool = True
    m_e: int | None = None
    busy_groups: int | None = None
    group_list: tuple[int, ...] | None = None
    exact_rows: bool = False
    hint_m_e: bool = False

    op_type = "GroupedMatmul"
    operation = "grouped_matmul"
    axes = ("m", "k", "n", "m_e", "tuning_config")


@dataclass(frozen=True)
class SwigluQuantCall:
    """``npu_grouped_matmul_swiglu_quant`` int8 × int8: weight[groups, k, n], half as many columns out."""

    m: int
    k: int
    n: int
    groups: int

    op_type = "GroupedMatmulSwigluQuant"
    operation = "grouped_matmul_swiglu_quant"
    axes = ("m", "k", "n")


@dataclass(frozen=True)
class FinalizeRoutingCall:
    """``npu_grouped_matmul_finalize_routing`` int8 × int8 with one scale a channel."""

    m: int
    k: int
    n: int
    groups: int
    tuning_config: int = 0
    scale_dtype: str = "float32"
    row_index_dtype: str = "int64"

    op_type = "GroupedMatmulFinalizeRouting"
    operation = "grouped_matmul_finalize_routing"
    axes = ("m", "k", "n", "tuning_config")


OperatorCall = DynamicQuantCall | QuantMatmulCall | GroupedMatmulCall | SwigluQuantCall | FinalizeRoutingCall


@dataclass(frozen=True)
class Points:
    """One call template at many values of an axis: every array has the same length."""

    m: IntArray
    k: IntArray
    n: IntArray
    m_e: IntArray
    tuning_config: IntArray

    def __len__(self) -> int:
        return len(self.m)


def points(call: OperatorCall, axis: str, values: IntArray) -> Points:
    """``call`` with ``axis`` at each of ``values``; raises PredictError for a value that breaks a rule."""
    if axis not in call.axes:
        known = ", ".join(call.axes)
        raise PredictError("axis", f"{axis!r} is not an axis of {call.operation}; known: {known}")
    swept = ints(values).reshape(-1)

    def column(name: str) -> IntArray:
        if name == axis:
            return swept
        return np.full(len(swept), getattr(call, name, 0) or 0, dtype=np.int64)

    result = Points(*(column(field.name) for field in fields(Points)))
    if isinstance(call, GroupedMatmulCall) and axis == "m_e":
        result = _follow_m_e(call, result)
    _check(call, result)
    return result


def _follow_m_e(call: GroupedMatmulCall, at: Points) -> Points:
    rows = at.m_e * (call.busy_groups or call.groups) if call.exact_rows else at.m
    return replace(at, m=rows, tuning_config=at.m_e if call.hint_m_e else at.tuning_config)


def call_id(call: OperatorCall) -> str:
    """Hash of everything host tiling sees of the call, 16 hex digits."""
    return sha256(repr(call).encode()).hexdigest()[:16]


def _check(call: OperatorCall, at: Points) -> None:
    _require_all("m", at.m >= 1, at.m, "rows must be at least 1")
    _require_all("k", at.k >= 1, at.k, "the inner dimension must be at least 1")
    if isinstance(call, DynamicQuantCall):
        _require_one_of("x_dtype", call.x_dtype, ("bfloat16", "float16"))
        _require_one_of("y_dtype", call.y_dtype, ("int8",))
        _require("group_num", call.group_num >= 0, call.group_num, "must not be negative")
        return
    _require_all("n", at.n >= 1, at.n, "the output columns must be at least 1")
    if not isinstance(call, QuantMatmulCall):
        _require("groups", call.groups >= 1, call.groups, "the number of experts must be at least 1")
    if isinstance(call, SwigluQuantCall):
        return
    if isinstance(call, FinalizeRoutingCall):
        _require_one_of("scale_dtype", call.scale_dtype, ("float32", "bfloat16"))
        _require_one_of("row_index_dtype", call.row_index_dtype, ("int64", "int32"))
        return
    _require_one_of("weight_format", call.weight_format, FORMATS)
    if call.weight_format == NZ:
        _check_nz(call.transpose_w, at)
    if isinstance(call, QuantMatmulCall):
        _check_quant_matmul(call)
    else:
        _check_grouped_matmul(call, at)


def _check_nz(transposed: bool, at: Points) -> None:
    """SGLang casts an int8 weight to FRACTAL_NZ only when both dimensions fill whole fractals."""
    rows, columns = ("n", "k") if transposed else ("k", "n")
    whole = f"{rows.upper()} % {NZ_ROWS} == 0 and {columns.upper()} % {NZ_COLUMNS_INT8} == 0"
    rule = f"an int8 FRACTAL_NZ weight{' [N, K]' if transposed else ''} needs {whole}"
    for name, unit in ((rows, NZ_ROWS), (columns, NZ_COLUMNS_INT8)):
        value = getattr(at, name)
        _require_all(name, value % unit == 0, value, rule)


def _check_quant_matmul(call: QuantMatmulCall) -> None:
    _require_one_of("x_format", call.x_format, FORMATS)
    _require_one_of("out_dtype", call.out_dtype, ("bfloat16",))
    _require_one_of("scale_dtype", call.scale_dtype, ("bfloat16", "float32"))
    _require_one_of("bias_dtype", call.bias_dtype, (None, "int32", "bfloat16", "float32"))
    if call.batch != 1:
        raise OutOfScope("batch", f"{call.batch}: only one weight matrix a call is restated")


def _check_grouped_matmul(call: GroupedMatmulCall, at: Points) -> None:
    _require_one_of("out_dtype", call.out_dtype, ("bfloat16", "float16", "int8", "int32"))
    _require_one_of("scale_dtype", call.scale_dtype, ("bfloat16", "float16", "float32", "uint64", "int32"))
    _require_one_of("group_list_type", call.group_list_type, (0, 1, 2))
    _require_all("m_e", at.m_e >= 0, at.m_e, "rows of an expert must not be negative")
    if call.group_list is not None:
        _require("group_list", len(call.group_list) == call.groups, call.group_list, "one count an expert")
        _require("group_list", min(call.group_list) >= 0, call.group_list, "rows must not be negative")
        _require_all("m", at.m >= sum(call.group_list), at.m, "fewer allocated rows than group_list holds")
    in_range = (at.tuning_config >= 0) & (at.tuning_config <= at.m)
    _require_all("tuning_config", in_range, at.tuning_config, "valid range is [0, allocated rows of x]")


def _require(field: str, condition: bool, value: object, rule: str) -> None:
    if not condition:
        raise PredictError(field, f"{value}: {rule}")


def _require_all(field: str, condition: BoolArray, values: IntArray, rule: str) -> None:
    if not condition.all():
        raise PredictError(field, f"{values[int(np.argmin(condition))]}: {rule}")


def _require_one_of(field: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        raise PredictError(
            field,
            f"{value!r} is not covered; known: {', '.join('none' if k is None else str(k) for k in known)}",
        )
