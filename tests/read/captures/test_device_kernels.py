"""Kernels of a device get their points by call order, or none at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.read.captures.device_kernels import Proof, read_device_kernels
from tilewatch.tasks.read.origin import Origin

ORIGIN = Origin("c" * 32, "run", "build", "b" * 16, "C", "nz", "simulated", 0)
HEADER = (
    "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Block Num,Input Shapes,Input Formats"
)
QUANT = ("aclnnDynamicQuantV2_DynamicQuant_DynamicQuant", "DynamicQuant", "ND")
MATMUL = (
    "aclnnQuantMatmulWeightNz_QuantBatchMatmulV3_QuantBatchMatmulV3",
    "QuantBatchMatmulV3",
    "ND;FRACTAL_NZ",
)
CAST = ("aclnnCast_Cast_Cast", "Cast", "ND")
LINEAR = {"npu::npu_dynamic_quant": 1, "npu::npu_quant_matmul": 1}
Kernel = tuple[str, str, str]


def records(calls: int = 2) -> dict[str, dict[str, Any]]:
    """Two points of a quantised linear: 8 and 16 rows."""
    return {
        point: {
            "point_id": point, "order": order, "profiled_calls": calls, "kernels_per_call": LINEAR,
            "main_operator": "npu::npu_quant_matmul", "shape_x": [rows, 64],
        }
        for order, (point, rows) in enumerate((("a", 8), ("b", 16)))
    }  # fmt: skip


def write(folder: Path, kernels: list[tuple[Kernel, int]]) -> None:
    target = folder / "profiler/x_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
    target.parent.mkdir(parents=True)
    lines = [
        f'0,{name},{op_type},AI_CORE,{1000 + index}.000,1.000,4,"""{rows},64;64,32""",{formats}'
        for index, ((name, op_type, formats), rows) in enumerate(kernels)
    ]
    target.write_text("\n".join([HEADER, *reversed(lines)]) + "\n")  # rows of a profile are in no order


def points(folder: Path, lead_in_calls: int = 1) -> tuple[list[str | None], list[str], dict[str, Proof]]:
    result, proofs = read_device_kernels(folder, ORIGIN, records(), lead_in_calls)
    ordered = result.table.sort_by("start_ns")
    return ordered["point_id"].to_pylist(), result.quarantine["reason"].to_pylist(), proofs


CALLS = [(QUANT, 8), (MATMUL, 8)] * 2 + [(QUANT, 16), (MATMUL, 16)] * 2


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_kernels_lost_at_the_head_of_the_window_cost_no_point_its_own(tmp_path: Path, lost: int) -> None:
    write(tmp_path, [(QUANT, 8), (MATMUL, 8), *CALLS][lost:])
    ids, refused, proofs = points(tmp_path)
    assert ids == [None] * (2 - lost) + ["a"] * 4 + ["b"] * 4 and refused == []
    assert proofs == dict.fromkeys(("a", "b"), Proof("aclnnQuantMatmulWeightNz", ("FRACTAL_NZ",)))


def test_another_kernel_belongs_to_the_launch_that_follows(tmp_path: Path) -> None:
    write(tmp_path, [*CALLS[:5], (CAST, 16), *CALLS[5:]])
    ids, refused, _ = points(tmp_path)
    assert ids == ["a"] * 4 + ["b"] * 5 and refused == []


@pytest.mark.parametrize(
    ("kernels", "reason"),
    [
        (
            CALLS[1:],
            "expected 4 DynamicQuant, 4 QuantBatchMatmulV3 kernels and at most 2",
        ),
        (CALLS + CALLS[:4], "found 6 DynamicQuant, 6 QuantBatchMatmulV3"),
        ([(MATMUL, 8), *CALLS[1:]], "kernel 1 is QuantBatchMatmulV3, expected DynamicQuant"),
        ([*CALLS[:4], (QUANT, 8), *CALLS[5:]], "kernel 5 read [8, 64], expected [16, 64]"),
    ],
)
def test_where_the_launches_are_not_those_of_the_calls_nothing_is_attributed(
    tmp_path: Path, kernels: list[tuple[Kernel, int]], reason: str
) -> None:
    write(tmp_path, kernels)
    ids, refused, proofs = points(tmp_path)
    assert ids == [None] * len(kernels) and proofs == {}
    assert len(refused) == 1 and reason in refused[0]


def test_a_profile_without_kernels_is_said(tmp_path: Path) -> None:
    ids, refused, _ = points(tmp_path)
    assert ids == [] and refused == ["no kernel_details.csv was left"]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([1] * 4 + [2] * 4, None),
        ([7] * 4 + [9] * 4, None),
        ([None] * 8, None),
        ([1] * 3 + [None] + [2] * 4, None),
        ([1] * 3 + [2] * 5, "2 points lie in 2 profiler steps, expected one each; nothing is attributed"),
        ([1] * 8, "2 points lie in 1 profiler steps, expected one each; nothing is attributed"),
    ],
)
def test_kernels_are_attributed_only_where_every_point_has_a_profiler_step_of_its_own(
    tmp_path: Path, steps: list[int | None], reason: str | None
) -> None:
    write(tmp_path, CALLS)
    (file,) = tmp_path.rglob("kernel_details.csv")
    head, *lines = file.read_text().splitlines()
    stepped = [f"{line},{'' if s is None else s}" for line, s in zip(lines, reversed(steps), strict=True)]
    file.write_text("\n".join([f"{head},Step Id", *stepped]) + "\n")
    result, proofs = read_device_kernels(tmp_path, ORIGIN, records(), 1, True)
    assert result.quarantine["reason"].to_pylist() == ([] if reason is None else [reason])
    assert bool(proofs) == (reason is None)
    assert len(set(result.table["point_id"].to_pylist())) == (2 if reason is None else 1)
