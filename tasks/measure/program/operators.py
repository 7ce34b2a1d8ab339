"""The operators that the experiments are about, by the names that torch has for them."""

from __future__ import annotations

DYNAMIC_QUANT = "npu::npu_dynamic_quant"
QUANT_MATMUL = "npu::npu_quant_matmul"
GROUPED_MATMUL = "npu::npu_grouped_matmul"
MM = "aten::mm"
