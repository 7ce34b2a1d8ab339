"""Reference kernels for the CPU under the real ``torch.ops.npu`` names and schemas.

Schemas: op-plugin 26.0.0, which is what the torch_npu 2.13.0 wheel registers. A kernel implements what the
serving path calls; another argument is refused, never ignored, except ``tuning_config``: a hint for a tiling
that a CPU does not have. Kernels read an NZ weight in NZ order; no ND copy is kept anywhere.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

import int8_product
import nz
import products
import torch

SCHEMAS = (
    "npu_dynamic_quant(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, "
    'int? dst_type=None, str quant_mode="pertoken", float dst_type_max=0.0) -> (Tensor, Tensor)',
    "npu_quant_matmul(Tensor x1, Tensor x2, Tensor scale, *, Tensor? offset=None, "
    "Tensor? pertoken_scale=None, Tensor? bias=None, int? output_dtype=None, int? x1_dtype=None, "
    "int? x2_dtype=None, int? pertoken_scale_dtype=None, int? scale_dtype=None, int[]? group_sizes=None, "
    "Tensor? y_scale=None) -> Tensor",
    "npu_grouped_matmul(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None, "
    "Tensor[]? offset=None, Tensor[]? antiquant_scale=None, Tensor[]? antiquant_offset=None, "
    "Tensor[]? per_token_scale=None, Tensor? group_list=None, Tensor[]? activation_input=None, "
    "Tensor[]? activation_quant_scale=None, Tensor[]? activation_quant_offset=None, int? split_item=0, "
    "int? group_type=None, int? group_list_type=0, int? act_type=0, int[]? tuning_config=None, "
    "int? output_dtype=None, int? x_dtype=None, int? weight_dtype=None, int? scale_dtype=None, "
    "int? per_token_scale_dtype=None) -> Tensor[]",
    "npu_format_cast(Tensor input, int acl_format, *, int? customize_dtype=None, int? input_dtype=None) "
    "-> Tensor",
    "get_npu_format(Tensor input) -> int",
)

INT8_MAX = 127
_DTYPES = {5: torch.float16, 15: torch.bfloat16}
_libraries: Dict[str, torch.library.Library] = {}
_dispatched: Dict[str, str] = {}
_recording_inside = True
_inside_kernel = False


def register() -> None:
    """Register the kernels once in this process. ``aten::mm`` learns NZ only when such a weight appears."""
    if _libraries:
        return
    int8_product.route()
    library = torch.library.Library("npu", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    for name, kernel in (
        ("npu_dynamic_quant", _dynamic_quant),
        ("npu_quant_matmul", _quant_matmul),
        ("npu_grouped_matmul", _grouped_matmul),
        ("npu_format_cast", _format_cast),
        ("get_npu_format", nz.format_of),
    ):
        library.impl(name, _kernel(kernel), "CPU")
    _libraries["npu"] = library


def dispatched(operator: str) -> Optional[str]:
    """Name of the reference kernel that last served ``operator``; None where none did (ND ``aten::mm``)."""
    return _dispatched.get(operator)


def forget_dispatched() -> None:
    """Forget what was served, so that the next answer is about calls from now on."""
    _dispatched.clear()


def record_inside(on: bool) -> None:
    """Whether a profiler also sees the host operators inside a kernel. On the device it sees none."""
    global _recording_inside
    _recording_inside = on


def _kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    enable = getattr(torch._C._autograd, "_enable_record_function", None)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        global _inside_kernel
        if _recording_inside or _inside_kernel or enable is None:
            return function(*args, **kwargs)
        _inside_kernel = True
        enable(False)
        try:
            return function(*args, **kwargs)
        finally:
            enable(True)
            _inside_kernel = False

    return run


def _format_cast(
    input: torch.Tensor,
    acl_format: int,
    *,
    customize_dtype: Optional[int] = None,
    input_dtype: Optional[int] = None,
) -> torch.Tensor:
    _refuse("npu_format_cast", customize_dtype=customize_dtype, input_dtype=input_dtype)
    if acl_format not in nz.FORMAT_NAMES:
        raise RuntimeError(f"npu_format_cast: acl_format {acl_format} is neither 2 (ND) nor 29 (FRACTAL_NZ)")
    if input.dim() < 2 or acl_format == nz.format_of(input):
        return input
    if acl_format == nz.ACL_FORMAT_ND:
        return nz.unpack(input)
    if input.dtype not in (torch.int8, torch.bfloat16, torch.float16):
        raise RuntimeError(f"npu_format_cast: no FRACTAL_NZ for {input.dtype}")
    if input.dtype != torch.int8 and "aten" not in _libraries:
        _teach_mm_the_format()
    return nz.pack(input)


def _dynamic_quant(
    input: torch.Tensor,
    *,
    smooth_scales: Optional[torch.Tensor] = None,
    group_index: Optional[torch.Tensor] = None,
    dst_type: Optional[int] = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Per token: scale = max|x| / 127, y = x / scale rounded half to even; a zero row gives zeros."""
    _refuse("npu_dynamic_quant", smooth_scales=smooth_scales, group_index=group_index, dst_type=dst_type)
    if quant_mode != "pertoken" or dst_type_max:
        raise RuntimeError("npu_dynamic_quant: the reference kernel has quant_mode pertoken only")
    if input.dtype not in (torch.bfloat16, torch.float16) or input.dim() < 2:
        raise RuntimeError(f"npu_dynamic_quant: needs BF16 or FP16 of rank > 1, not {input.dtype}")
    wide = input.float()
    scale = wide.abs().amax(-1) / INT8_MAX
    divisor = scale.masked_fill(scale == 0, 1.0).unsqueeze(-1)
    _dispatched["npu::npu_dynamic_quant"] = "cpu_dynamic_quant"
    return wide.div_(divisor).round_().to(torch.int8), scale


def _quant_matmul(
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    *,
    pertoken_scale: Optional[torch.Tensor] = None,
    output_dtype: Optional[int] = None,
    **others: Any,
) -> torch.Tensor:
    """[M, N] = (x1 · x2) in INT32, times the scale of the column and of the row in float32, then cast."""
    _refuse("npu_quant_matmul", **others)
    _check_int8("npu_quant_matmul", x1, x2)
    if scale.numel() not in (1, x2.shape[1]) or scale.dtype not in (torch.bfloat16, torch.float32):
        raise RuntimeError(f"npu_quant_matmul: scale must be BF16 or FP32 [N], not {tuple(scale.shape)}")
    if pertoken_scale is not None and tuple(pertoken_scale.shape) != (x1.shape[0],):
        raise RuntimeError(f"npu_quant_matmul: pertoken_scale must be [M], not {tuple(pertoken_scale.shape)}")
    out_dtype = _out_dtype("npu_quant_matmul", output_dtype)
    stored, kind = _stored(x2)
    _dispatched["npu::npu_quant_matmul"] = f"cpu_quant_matmul_{kind}"
    return products.scaled(x1, stored[0], x2.shape[1], scale, pertoken_scale, out_dtype)


def _grouped_matmul(
    x: List[torch.Tensor],
    weight: List[torch.Tensor],
    *,
    scale: Optional[List[torch.Tensor]] = None,
    per_token_scale: Optional[List[torch.Tensor]] = None,
    group_list: Optional[torch.Tensor] = None,
    split_item: Optional[int] = 0,
    group_type: Optional[int] = None,
    group_list_type: Optional[int] = 0,
    tuning_config: Optional[List[int]] = None,
    output_dtype: Optional[int] = None,
    act_type: Optional[int] = 0,
    **others: Any,
) -> List[torch.Tensor]:
    """One [M, N] from one x [M, K], one weight [E, K, N]; rows beyond the groups are left as allocated."""
    _refuse("npu_grouped_matmul", act_type=act_type or None, **others)
    rows, experts = _check_grouped(x, weight, group_list, split_item, group_type)
    counts = _counts(group_list, group_list_type, len(rows), len(experts))
    is_int8 = rows.dtype == torch.int8
    out_dtype = _out_dtype("npu_grouped_matmul", output_dtype) if is_int8 else rows.dtype
    if is_int8 != bool(scale) or is_int8 != bool(per_token_scale):
        raise RuntimeError("npu_grouped_matmul: scale and per_token_scale go with INT8, and only with it")
    stored, kind = _stored(experts)
    _dispatched["npu::npu_grouped_matmul"] = f"cpu_grouped_matmul_{kind}"
    n = experts.shape[2]
    out = torch.empty((len(rows), n), dtype=out_dtype)
    start = 0
    for expert, count in enumerate(counts):
        part = slice(start, start + count)
        start += count
        if not count:
            continue
        if scale and per_token_scale:
            out[part] = products.scaled(
                rows[part], stored[expert], n, scale[0][expert], per_token_scale[0][part], out_dtype
            )
        else:
            out[part] = products.floating(rows[part], stored[expert], n)
    return [out]


def _matmul_by_format(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """``aten::mm`` as on the device: the storage format of the weight decides."""
    if nz.format_of(mat2) == nz.ACL_FORMAT_ND:
        _dispatched.pop("aten::mm", None)
        return products.floating(self, mat2, mat2.shape[1])
    _dispatched["aten::mm"] = "cpu_matmul_weight_nz"
    return products.floating(self, nz.blocks(mat2)[0], mat2.shape[1])


def _teach_mm_the_format() -> None:
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overriding is what is meant
        library.impl("mm", _kernel(_matmul_by_format), "CPU")
    _libraries["aten"] = library


def _stored(weight: torch.Tensor) -> Tuple[torch.Tensor, str]:
    """``weight`` as it lies, one entry a matrix, and the suffix of the kernel that reads it so."""
    if nz.format_of(weight) == nz.ACL_FORMAT_FRACTAL_NZ:
        return nz.blocks(weight), "weight_nz"
    return (weight if weight.dim() == 3 else weight[None]), "nd"


def _check_int8(operator: str, x: torch.Tensor, w: torch.Tensor) -> None:
    if x.dtype != torch.int8 or w.dtype != torch.int8:
        raise RuntimeError(f"{operator}: needs INT8 x INT8, not {x.dtype} x {w.dtype}")
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[0]:
        raise RuntimeError(f"{operator}: K of x1 {tuple(x.shape)} and of x2 {tuple(w.shape)} must be equal")


def _check_grouped(
    x: List[torch.Tensor],
    weight: List[torch.Tensor],
    group_list: Optional[torch.Tensor],
    split_item: Optional[int],
    group_type: Optional[int],
) -> Tuple[torch.Tensor, torch.Tensor]:
    operator = "npu_grouped_matmul"
    if len(x) != 1 or len(weight) != 1 or split_item not in (2, 3) or group_type != 0 or group_list is None:
        raise RuntimeError(
            f"{operator}: the reference kernel has one x, one weight, split_item 2 or 3, group_type 0 and a "
            f"group_list; got {len(x)} x, {len(weight)} weights, split_item {split_item}, "
            f"group_type {group_type}"
        )
    rows, experts = x[0], weight[0]
    if rows.dim() != 2 or experts.dim() != 3 or rows.shape[1] != experts.shape[1]:
        raise RuntimeError(
            f"{operator}: K of x {tuple(rows.shape)} and of weight {tuple(experts.shape)} must be equal"
        )
    if rows.dtype != experts.dtype or rows.dtype not in (torch.int8, torch.bfloat16, torch.float16):
        raise RuntimeError(f"{operator}: no {rows.dtype} x {experts.dtype}")
    return rows, experts


def _counts(group_list: torch.Tensor, list_type: Optional[int], rows: int, experts: int) -> List[int]:
    """Rows of every expert, from counts (type 1) or from their running sum (type 0)."""
    operator = "npu_grouped_matmul"
    if group_list.dtype != torch.int64 or tuple(group_list.shape) != (experts,) or list_type not in (0, 1):
        raise RuntimeError(
            f"{operator}: group_list must be INT64 [{experts}] of type 0 or 1, "
            f"not {group_list.dtype} {tuple(group_list.shape)} of type {list_type}"
        )
    counts = group_list if list_type == 1 else torch.diff(group_list, prepend=group_list.new_zeros(1))
    values: List[int] = counts.tolist()
    if min(values) < 0 or sum(values) > rows:
        raise RuntimeError(f"{operator}: group_list {group_list.tolist()} does not fit into {rows} rows")
    return values


def _out_dtype(operator: str, output_dtype: Optional[int]) -> torch.dtype:
    if output_dtype not in _DTYPES:
        raise RuntimeError(f"{operator}: output_dtype must be BF16 or FP16, not {output_dtype}")
    return _DTYPES[output_dtype]


def _refuse(operator: str, **arguments: Any) -> None:
    given = sorted(name for name, value in arguments.items() if value is not None)
    if given:
        raise RuntimeError(f"{operator}: the reference kernel has no {', '.join(given)}")
