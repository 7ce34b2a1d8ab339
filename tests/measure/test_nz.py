"""FRACTAL_NZ storage against the index formula of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

SHAPES = [(16, 32), (48, 96), (4096, 32), (100, 50), (1, 1), (33, 64), (3, 17, 33), (2, 32, 64)]


@pytest.fixture(scope="module")
def nz(program: Path) -> Any:
    import nz  # type: ignore[import-not-found]

    return nz


def storage_by_formula(weight: np.ndarray[Any, Any], n0: int) -> np.ndarray[Any, Any]:
    """Element (e, k, n) at ((e·N1 + n // N0)·K1 + k // 16)·16·N0 + (k % 16)·N0 + n % N0."""
    experts, rows, columns = weight.shape
    n1, k1 = -(-columns // n0), -(-rows // 16)
    flat = np.zeros(experts * n1 * k1 * 16 * n0, dtype=weight.dtype)
    e, k, n = np.indices(weight.shape)
    flat[((e * n1 + n // n0) * k1 + k // 16) * 16 * n0 + (k % 16) * n0 + n % n0] = weight
    return flat


def bytes_of(tensor: Any) -> np.ndarray[Any, Any]:
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (storage.nbytes() // tensor.element_size(),))
    return flat.view(torch.int16 if tensor.element_size() == 2 else torch.int8).numpy()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float16], ids=str)
def test_storage_is_what_the_index_formula_says(kernels: Any, nz: Any, shape: Any, dtype: Any) -> None:
    weight = torch.randint(-100, 100, shape).to(dtype)
    packed = torch.ops.npu.npu_format_cast(weight, 29)
    whole = weight.reshape(-1, *shape[-2:])
    plain = whole.view(torch.int16).numpy() if dtype != torch.int8 else whole.numpy()
    expected = storage_by_formula(plain, 32 // weight.element_size())
    np.testing.assert_array_equal(bytes_of(packed), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_round_trip_gives_the_weight_back(kernels: Any, shape: Any) -> None:
    weight = torch.randint(-128, 128, shape, dtype=torch.int8)
    packed = torch.ops.npu.npu_format_cast(weight, 29)
    assert packed.shape == weight.shape
    assert torch.ops.npu.get_npu_format(packed) == 29
    back = torch.ops.npu.npu_format_cast(packed, 2)
    assert torch.ops.npu.get_npu_format(back) == 2
    assert torch.equal(back, weight)


def test_a_transposed_weight_is_packed_by_its_logical_order(kernels: Any, nz: Any) -> None:
    weight = torch.randint(-128, 128, (64, 48), dtype=torch.int8).t()
    assert torch.equal(nz.unpack(nz.pack(weight)), weight)


def test_a_view_of_an_nz_tensor_is_refused_by_the_kernels(kernels: Any) -> None:
    packed = torch.ops.npu.npu_format_cast(torch.ones((64, 64), dtype=torch.int8), 29)
    x, scale = torch.ones((2, 32), dtype=torch.int8), torch.ones(64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="not a whole FRACTAL_NZ tensor"):
        torch.ops.npu.npu_quant_matmul(x, packed[:32], scale, output_dtype=torch.bfloat16)


def test_a_freed_nz_weight_leaves_no_format_behind(kernels: Any, nz: Any) -> None:
    for _ in range(50):
        packed = torch.ops.npu.npu_format_cast(torch.ones((64, 64), dtype=torch.int8), 29)
        del packed
        assert torch.ops.npu.get_npu_format(torch.ones((64, 64), dtype=torch.int8)) == 2
    assert len(nz._nz_storages) < 50


def test_a_format_that_is_not_known_is_refused(kernels: Any) -> None:
    with pytest.raises(RuntimeError, match="acl_format 4 is neither"):
        torch.ops.npu.npu_format_cast(torch.ones((64, 64), dtype=torch.int8), 4)
    with pytest.raises(RuntimeError, match="no FRACTAL_NZ for torch.float32"):
        torch.ops.npu.npu_format_cast(torch.ones((64, 64)), 29)
