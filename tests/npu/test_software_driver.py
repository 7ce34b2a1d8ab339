"""The software NPU under the real torch_npu: what it computes, stores and orders, against other code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).with_name("operators_on_npu.py")
BF16_RELATIVE_ERROR = 2**-7
"""One step of BF16: the order of a float32 sum may move a result across a rounding boundary."""


@pytest.fixture(scope="module")
def results(on_npu: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    target = tmp_path_factory.mktemp("operators") / "results.pt"
    done = on_npu(SCRIPT, target)
    assert done.returncode == 0, done.stderr[-3000:]
    loaded: dict[str, Any] = torch.load(target)
    return loaded


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 → the nearest BF16 as float32, halves to even, by arithmetic on the bits."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def scaled(x: Any, w: Any, scale: Any, row_scale: Any) -> np.ndarray:
    """(x · w) in 64-bit integers, then float32 scales of the column and of the row, then BF16."""
    product = x.numpy().astype(np.int64) @ w.numpy().astype(np.int64)
    columns = product.astype(np.float32) * scale.float().numpy()[None, :]
    return to_bf16(columns * row_scale.numpy()[:, None].astype(np.float32))


def test_dynamic_quant_equals_the_formula_bit_for_bit(results: dict[str, Any]) -> None:
    for case in results["quant"]:
        x = case["x"].float().numpy()
        scale = (np.abs(x).max(1) / np.float32(127)).astype(np.float32)
        assert np.array_equal(case["s"].numpy(), scale)
        divisor = np.where(scale == 0, np.float32(1), scale)[:, None]
        assert np.array_equal(case["q"].numpy(), np.rint(x / divisor).astype(np.int8))


@pytest.mark.parametrize("layout", ["nd", "nz"])
def test_quant_matmul_equals_integer_arithmetic_bit_for_bit(results: dict[str, Any], layout: str) -> None:
    for case in results["quant"]:
        expected = scaled(case["q"], case["w"], case["scale"], case["s"])
        assert np.array_equal(case[layout].float().numpy(), expected)


def test_a_cast_weight_is_stored_as_fractal_nz_and_comes_back_whole(results: dict[str, Any]) -> None:
    for case in results["quant"]:
        assert (int(case["nd_format"]), int(case["nz_format"])) == (2, 29)
        assert torch.equal(case["nz_back"], case["w"])


@pytest.mark.parametrize("name", ["counts_nd", "counts_nz", "cumsum_nd", "cumsum_nz"])
def test_grouped_matmul_equals_integer_arithmetic_bit_for_bit(results: dict[str, Any], name: str) -> None:
    case = results["grouped"]
    parts, first = [], 0
    for expert, count in enumerate(case["counts"]):
        rows = slice(first, first + count)
        first += count
        scales = case["scale"][expert], case["row_scale"][rows]
        parts.append(scaled(case["x"][rows], case["w"][expert], *scales))
    assert np.array_equal(case[name].float().numpy(), np.concatenate(parts))


def test_bf16_products_are_within_one_rounding_step(results: dict[str, Any]) -> None:
    case, grouped = results["matmul"], results["grouped"]
    expected = case["x"].double() @ case["w"].double()
    size = case["x"].double().abs() @ case["w"].double().abs()
    for layout in ("nd", "nz"):
        assert ((case[layout].double() - expected).abs() <= BF16_RELATIVE_ERROR * size).all()
    first = grouped["x16"][:3].double() @ grouped["w16"][0].double()
    size = grouped["x16"][:3].double().abs() @ grouped["w16"][0].double().abs()
    assert ((grouped["bf16"][:3].double() - first).abs() <= BF16_RELATIVE_ERROR * size).all()


def test_a_hint_above_the_allocated_rows_is_an_error(results: dict[str, Any]) -> None:
    assert "Invalid tuningConfig: 9" in results["grouped"]["hint_beyond_rows"]


def test_copies_follow_strides_and_types(results: dict[str, Any]) -> None:
    case = results["copies"]
    assert torch.equal(case["transposed"], case["x"].t().contiguous())
    assert torch.equal(case["half"], case["x"].half())


def test_launches_are_asynchronous_and_streams_wait_for_each_other(results: dict[str, Any]) -> None:
    case = results["streams"]
    assert case["pending"] and case["ordered"] and case["pinned"]
    assert case["elapsed_ms"] > case["enqueue_ms"]
