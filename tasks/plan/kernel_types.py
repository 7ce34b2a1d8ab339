"""Which kernel an operation must have left: the operator types of its main kernel, by agent."""

from __future__ import annotations

DYNAMIC_QUANT = ("npu::npu_dynamic_quant", "DynamicQuant")
QUANT_MATMUL = ("npu::npu_quant_matmul", "QuantBatchMatmulV3", "QuantBatchMatmulV4")
GROUPED_MATMUL = ("npu::npu_grouped_matmul", "GroupedMatmul")
MATMUL = ("aten::mm", "aten::matmul", "MatMulV2", "MatMulV3", "MatMulCommon")

MAIN_KERNELS: dict[str, tuple[str, ...]] = {
    "dynamic_quant": DYNAMIC_QUANT,
    "tuple_input": QUANT_MATMUL,
    "quant_linear": QUANT_MATMUL,
    "quant_matmul": QUANT_MATMUL,
    "matmul": MATMUL,
    "grouped_matmul": GROUPED_MATMUL,
}
"""Operator types by operation: the CPU's operator names first, then the profiler's Type on the device."""
