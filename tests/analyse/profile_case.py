"""Profiles of a small decode program with stated truth: what a profiler would write, with planted changes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

HEADER = (
    "Step Id", "Device_id", "Stream ID", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)",
    "Wait Time(us)", "Block Dim", "Mix Block Dim", "Input Shapes", "Input Data Types", "Input Formats",
    "Output Shapes", "Output Data Types", "Output Formats",
)  # fmt: skip
GAP_US = 1.2
BETWEEN_STEPS_US = 40.0
FIRST_START_US = 1_764_246_877_073_569


@dataclass(frozen=True)
class Kernel:
    """One launch of the made program; communication has no stream of its own in the file, as in real ones."""

    op: str
    us: float
    cores: int = 24
    core_kind: str = "AI_CORE"
    shapes: str = "16,2048"
    dtypes: str = "DT_BF16"
    formats: str = "ND"
    overlaps: bool = False


def layer() -> list[Kernel]:
    """Kernels of one decoder layer, in order."""
    vector = {"core_kind": "AI_VECTOR_CORE"}
    return [
        Kernel(
            "RmsNorm", 6.0, 16, shapes="16,2048;2048", dtypes="DT_BF16;DT_BF16", formats="ND;ND", **vector
        ),
        Kernel("DynamicQuant", 5.0, 16, **vector),
        Kernel("QuantBatchMatmulV3", 21.0, 24, "MIX_AIC", "16,2048;2048,4096", "INT8;INT8", "ND;FRACTAL_NZ"),
        Kernel("FusedInferAttentionScore", 88.0, 24, "MIX_AIC", "16,16,128;64,128,16,128"),
        Kernel("MatMulV2", 13.0, 24, shapes="16,2048;2048,256", dtypes="DT_BF16;DT_BF16", formats="ND;ND"),
        Kernel("GroupedMatmul", 47.0, 24, "MIX_AIC", "128,2048;8,2048,2048", "INT8;INT8", "ND;FRACTAL_NZ"),
        Kernel("SwiGlu", 7.0, 48, shapes="128,2048", **vector),
        Kernel("DynamicQuant", 6.5, 48, shapes="128,1024", **vector),
        Kernel("GroupedMatmul", 30.0, 24, "MIX_AIC", "128,1024;8,1024,2048", "INT8;INT8", "ND;FRACTAL_NZ"),
        Kernel("hcom_allReduce_", 35.0, 0, "COMMUNICATION", "", "", "", overlaps=True),
        Kernel("Add", 4.0, 48, shapes="16,2048;16,2048", dtypes="DT_BF16;DT_BF16", formats="ND;ND", **vector),
    ]


def program(layers: int = 6) -> list[Kernel]:
    """Kernels of one decode step."""
    body = [kernel for _ in range(layers) for kernel in layer()]
    return [
        Kernel("GatherV2", 9.0, 16, "AI_VECTOR_CORE", "129280,2048;16", "DT_BF16;INT32", "ND;ND"),
        *body,
        Kernel(
            "MatMulV3", 160.0, 24, shapes="16,2048;2048,129280", dtypes="DT_BF16;DT_BF16", formats="ND;ND"
        ),
        Kernel("ArgMaxV2", 14.0, 48, "AI_VECTOR_CORE", "16,129280", "FLOAT"),
    ]


def changed(change: Callable[[Kernel], list[Kernel]], step: list[Kernel] | None = None) -> list[Kernel]:
    """A step with every kernel replaced by what ``change`` makes of it."""
    return [made for kernel in step or program() for made in change(kernel)]


def fused(step: list[Kernel] | None = None) -> list[Kernel]:
    """GroupedMatmul + SwiGlu + DynamicQuant as one kernel, 10 µs faster than the three."""
    made: list[Kernel] = []
    for kernel in step or program():
        if kernel.op == "SwiGlu":
            first = made.pop()
            made.append(replace(first, op="GroupedMatmulSwigluQuant", us=50.5))
        elif not (kernel.op == "DynamicQuant" and kernel.shapes == "128,1024"):
            made.append(kernel)
    return made


def write_profile(
    folder: Path,
    step: list[Kernel],
    *,
    seed: int,
    steps: int = 12,
    marked: bool = False,
    noise: float = 0.01,
    odd: dict[int, list[Kernel]] | None = None,
) -> Path:
    """A ``*_ascend_pt`` folder with kernel_details.csv: ``steps`` passes of ``step`` with log-normal noise.

    ``odd`` replaces the kernels of single steps. Communication runs beside the kernel behind it.
    """
    random = np.random.default_rng(seed)
    target = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    target.parent.mkdir(parents=True)
    now = 0.0
    with target.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(HEADER)
        for number in range(steps):
            for index, kernel in enumerate((odd or {}).get(number, step)):
                spent = kernel.us * float(np.exp(random.normal(0, noise)))
                rows.writerow(_row(kernel, number if marked else "", index, now, spent))
                now += GAP_US + (0 if kernel.overlaps else spent)
            now += BETWEEN_STEPS_US + 30 * float(random.random())
    return folder


def _row(kernel: Kernel, step: int | str, index: int, start: float, spent: float) -> list[object]:
    communicates = kernel.core_kind == "COMMUNICATION"
    name = f"{kernel.op}_{index}" if communicates else f"aclnn{kernel.op}_{index}_{kernel.op}"
    microseconds, nanoseconds = divmod(round(start * 1000), 1000)
    return [
        step, 0, "N/A" if communicates else 2, name, kernel.op, kernel.core_kind,
        f"{FIRST_START_US + microseconds}.{nanoseconds:03d}", f"{spent:.3f}", 0, kernel.cores, 0,
        f'"{kernel.shapes}"' if kernel.shapes else "N/A", kernel.dtypes or "N/A", kernel.formats or "N/A",
        f'"{_output(kernel)}"' if kernel.shapes else "N/A", "DT_BF16", "ND",
    ]  # fmt: skip


def _output(kernel: Kernel) -> str:
    """Output shape: of a matmul the rows of the first input and the columns of the second."""
    first, *others = kernel.shapes.split(";")
    if others and "at" in kernel.op and "ul" in kernel.op:
        return f"{first.split(',')[0]},{others[0].split(',')[-1]}"
    return first
