"""The reference kernels against an independent float64 and integer reference in NumPy."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]
HALF_ULP_BF16 = 2.0**-8 * 1.001
ND, NZ = 2, 29


@pytest.fixture(scope="module")
def errors() -> Iterator[dict[str, float]]:
    """Largest error by kernel and variant; printed at the end of the module (pytest -s)."""
    found: dict[str, float] = defaultdict(float)
    yield found
    print(f"\n\nHalf an ulp of BF16 is {2.0**-8:.3e} of a number.")
    print("\n| kernel and variant | largest error | in |\n|---|---|---|")
    for name in sorted(found):
        print(f"| {name.rpartition(' in ')[0]} | {found[name]:.3e} | {name.rpartition(' in ')[2]} |")


def doubles(tensor: Any) -> Array:
    values: Array = tensor.to(torch.float64).numpy()
    return values


def exact_product(x: Any, w: Any) -> Array:
    product: Array = x.numpy().astype(np.int64) @ w.numpy().astype(np.int64)
    return product


def relative(found: Any, expected: Array) -> float:
    largest = np.abs(doubles(found) - expected) / np.maximum(np.abs(expected), 1e-30)
    return float(largest.max(initial=0.0))


def int8(rng: np.random.Generator, *shape: int) -> Any:
    return torch.from_numpy(rng.integers(-128, 128, shape, dtype=np.int8))


def shapes(count: int, seed: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    drawn = [
        (int(rng.integers(1, 130)), int(rng.integers(1, 700)), int(rng.integers(1, 300)))
        for _ in range(count)
    ]
    return [(1, 4096, 64), (1, 1, 1), (7, 100, 50), (64, 1024, 512), (128, 7168, 32), (33, 16, 32), *drawn]


@pytest.mark.parametrize("route", ["product", "float32_chunks"])
def test_the_int8_product_is_exact_up_to_the_largest_k(
    kernels: Any, errors: dict[str, float], route: str
) -> None:
    import int8_product  # type: ignore[import-not-found]

    rng = np.random.default_rng(1)
    for m, k, n in [*shapes(12, 2), (2, 7168, 40)]:
        for x, w in (
            (int8(rng, m, k), int8(rng, k, n)),
            (torch.full((m, k), 127, dtype=torch.int8), torch.full((k, n), 127, dtype=torch.int8)),
            (torch.full((m, k), -128, dtype=torch.int8), torch.full((k, n), -128, dtype=torch.int8)),
        ):
            found = getattr(int8_product, route)(x, w)
            assert found.dtype == torch.int32
            difference = np.abs(found.numpy().astype(np.int64) - exact_product(x, w)).max()
            errors[f"INT8 product, {route} in units"] = max(
                errors[f"INT8 product, {route} in units"], difference
            )
            assert difference == 0


@pytest.mark.parametrize("acl_format", [ND, NZ], ids=["ND", "FRACTAL_NZ"])
@pytest.mark.parametrize("scale_dtype", [torch.bfloat16, torch.float32], ids=str)
def test_quant_matmul_is_the_exact_product_scaled_and_rounded_once(
    kernels: Any, errors: dict[str, float], acl_format: int, scale_dtype: Any
) -> None:
    rng = np.random.default_rng(3)
    label = f"npu_quant_matmul {'NZ' if acl_format == NZ else 'ND'} scale {scale_dtype} in relative"
    for m, k, n in shapes(12, 4):
        x, w = int8(rng, m, k), int8(rng, k, n)
        scale = torch.from_numpy(rng.uniform(1e-4, 2e-2, n)).to(scale_dtype)
        rows = torch.from_numpy(rng.uniform(1e-3, 1e-1, m)).float()
        loaded = torch.ops.npu.npu_format_cast(w, acl_format)
        for pertoken in (rows, None):
            found = torch.ops.npu.npu_quant_matmul(
                x, loaded, scale, pertoken_scale=pertoken, output_dtype=torch.bfloat16
            )
            expected = exact_product(x, w) * doubles(scale)
            expected = expected if pertoken is None else expected * doubles(rows)[:, None]
            assert found.shape == (m, n) and found.dtype == torch.bfloat16
            errors[label] = max(errors[label], relative(found, expected))
    assert errors[label] <= HALF_ULP_BF16


def test_nz_and_nd_weights_give_the_same_bits(kernels: Any) -> None:
    rng = np.random.default_rng(5)
    for m, k, n in shapes(10, 6):
        x, w, scale = int8(rng, m, k), int8(rng, k, n), torch.from_numpy(rng.uniform(0.01, 1, n)).float()
        answers = [
            torch.ops.npu.npu_quant_matmul(
                x, torch.ops.npu.npu_format_cast(w, form), scale, output_dtype=torch.bfloat16
            )
            for form in (ND, NZ)
        ]
        assert torch.equal(*answers)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_dynamic_quant_is_symmetric_per_token(kernels: Any, errors: dict[str, float], dtype: Any) -> None:
    rng = np.random.default_rng(7)
    scale_label, step_label = (
        f"npu_dynamic_quant {dtype} scale in relative",
        f"npu_dynamic_quant {dtype} in steps",
    )
    for m, k, _ in shapes(20, 8):
        x = torch.from_numpy(rng.normal(0, rng.uniform(1e-3, 30), (m, k))).to(dtype)
        quantised, scale = torch.ops.npu.npu_dynamic_quant(x)
        wide = doubles(x)
        expected_scale = np.abs(wide).max(axis=1) / 127
        steps = wide / np.where(expected_scale == 0, 1, expected_scale)[:, None]
        assert quantised.dtype == torch.int8 and scale.dtype == torch.float32 and scale.shape == (m,)
        errors[scale_label] = max(errors[scale_label], relative(scale, expected_scale))
        errors[step_label] = max(errors[step_label], float(np.abs(quantised.numpy() - steps).max()))
    assert errors[scale_label] < 1e-6
    assert errors[step_label] < 0.5 + 1e-4


def test_dynamic_quant_rounds_half_to_even_and_keeps_zero_rows(kernels: Any) -> None:
    x = torch.tensor([[127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5], [0.0] * 7], dtype=torch.bfloat16)
    quantised, scale = torch.ops.npu.npu_dynamic_quant(x)
    assert quantised.tolist() == [[127, 0, 2, 2, 0, -2, -2], [0] * 7]
    assert scale.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("acl_format", [ND, NZ], ids=["ND", "FRACTAL_NZ"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16], ids=str)
def test_grouped_matmul_multiplies_every_row_with_its_expert(
    kernels: Any, errors: dict[str, float], acl_format: int, dtype: Any
) -> None:
    rng = np.random.default_rng(9)
    label = f"npu_grouped_matmul {dtype} {'NZ' if acl_format == NZ else 'ND'} in relative"
    for counts in ([1], [0, 0, 5], [3, 0, 7, 1], [128, 129, 0, 1], [0, 0], [17] * 5):
        k, n, total = int(rng.integers(1, 40)) * 16, int(rng.integers(1, 9)) * 32, sum(counts)
        x, w = int8(rng, total + 4, k).to(dtype), int8(rng, len(counts), k, n).to(dtype)
        loaded = torch.ops.npu.npu_format_cast(w, acl_format)
        scale = torch.from_numpy(rng.uniform(1e-3, 1e-2, (len(counts), n))).bfloat16()
        rows = torch.from_numpy(rng.uniform(1e-3, 1e-1, total + 4)).float()
        scales = {"scale": [scale], "per_token_scale": [rows]} if dtype == torch.int8 else {}
        (found,) = torch.ops.npu.npu_grouped_matmul(
            [x], [loaded], split_item=2, group_type=0, group_list_type=1, output_dtype=torch.bfloat16,
            group_list=torch.tensor(counts), **scales,
        )  # fmt: skip
        expert = np.repeat(np.arange(len(counts)), counts)
        products = [doubles(x)[i] @ doubles(w)[e] for i, e in enumerate(expert)]
        expected = np.array(products).reshape(total, n)
        if scales:
            expected = expected * doubles(scale)[expert] * doubles(rows)[:total, None]
        assert found.shape == (total + 4, n)
        errors[label] = max(errors[label], relative(found[:total], expected))
    assert errors[label] <= HALF_ULP_BF16


def test_a_running_sum_means_the_same_as_counts_and_a_tuning_hint_changes_nothing(kernels: Any) -> None:
    rng = np.random.default_rng(11)
    x, w = int8(rng, 12, 64), int8(rng, 3, 64, 32)
    scales = {"scale": [torch.ones((3, 32)).bfloat16()], "per_token_scale": [torch.ones(12)]}
    common = {"split_item": 2, "group_type": 0, "output_dtype": torch.bfloat16, **scales}
    counts = torch.ops.npu.npu_grouped_matmul(
        [x], [w], group_list=torch.tensor([5, 0, 7]), group_list_type=1, tuning_config=[4], **common
    )
    sums = torch.ops.npu.npu_grouped_matmul(
        [x], [w], group_list=torch.tensor([5, 5, 12]), group_list_type=0, **common
    )
    assert torch.equal(counts[0], sums[0])


@pytest.mark.parametrize("acl_format", [ND, NZ], ids=["ND", "FRACTAL_NZ"])
def test_matmul_reads_a_bf16_weight_in_its_format(
    kernels: Any, errors: dict[str, float], acl_format: int
) -> None:
    rng = np.random.default_rng(13)
    label = f"aten::mm bfloat16 {'NZ' if acl_format == NZ else 'ND'} in relative to |x|·|w|"
    for m, k, n in [(1, 256, 64), (8, 512, 272), (64, 1024, 512), (5, 48, 16)]:
        x = torch.from_numpy(rng.normal(size=(m, k))).bfloat16()
        w = torch.from_numpy(rng.normal(size=(k, n))).bfloat16()
        found = torch.matmul(x, torch.ops.npu.npu_format_cast(w, acl_format))
        size = np.abs(doubles(x)) @ np.abs(doubles(w))
        error = np.abs(doubles(found) - doubles(x) @ doubles(w)) / size
        errors[label] = max(errors[label], float(error.max()))
    assert errors[label] <= HALF_ULP_BF16


def test_a_float32_matmul_is_as_before_once_matmul_knows_nz(kernels: Any) -> None:
    torch.ops.npu.npu_format_cast(torch.ones((16, 16)).bfloat16(), NZ)
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    np.testing.assert_allclose((x @ w).numpy(), x.numpy() @ w.numpy(), rtol=1e-5, atol=1e-6)


X, W, SCALE = torch.ones((2, 32), dtype=torch.int8), torch.ones((32, 32), dtype=torch.int8), torch.ones(32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x1": X[:, :16]}, "K of x1 (2, 16) and of x2 (32, 32) must be equal"),
        ({"x1": X.bfloat16()}, "needs INT8 x INT8"),
        ({"scale": SCALE[:7]}, "scale must be BF16 or FP32 [N], not (7,)"),
        ({"pertoken_scale": torch.ones(3)}, "pertoken_scale must be [M], not (3,)"),
        ({"output_dtype": torch.int32}, "output_dtype must be BF16 or FP16"),
        ({"bias": torch.ones(32)}, "the reference kernel has no bias"),
        ({"group_sizes": [1, 1, 32]}, "the reference kernel has no group_sizes"),
    ],
)
def test_quant_matmul_refuses_what_it_cannot_do(kernels: Any, arguments: Any, message: str) -> None:
    asked = {"x1": X, "x2": W, "scale": SCALE, "output_dtype": torch.bfloat16} | arguments
    positional = [asked.pop(name) for name in ("x1", "x2", "scale")]
    with pytest.raises(RuntimeError) as refused:
        torch.ops.npu.npu_quant_matmul(*positional, **asked)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group_list": torch.tensor([3])}, "group_list [3] does not fit into 2 rows"),
        ({"group_list": torch.tensor([-1])}, "does not fit into 2 rows"),
        ({"group_list": torch.tensor([1, 1])}, "group_list must be INT64 [1]"),
        ({"group_list": None}, "a group_list"),
        ({"group_type": None}, "group_type None"),
        ({"split_item": 0}, "split_item 0"),
        ({"per_token_scale": None}, "go with INT8, and only with it"),
        ({"act_type": 1}, "the reference kernel has no act_type"),
    ],
)
def test_grouped_matmul_refuses_what_it_cannot_do(kernels: Any, arguments: Any, message: str) -> None:
    asked = {
        "scale": [SCALE[None].bfloat16()], "per_token_scale": [torch.ones(2)], "split_item": 2,
        "group_type": 0, "group_list_type": 1, "group_list": torch.tensor([2]),
        "output_dtype": torch.bfloat16,
    } | arguments  # fmt: skip
    with pytest.raises(RuntimeError) as refused:
        torch.ops.npu.npu_grouped_matmul([X], [W[None]], **asked)
    assert message in str(refused.value)


def test_schemas_are_those_of_op_plugin_26_0_0(kernels: Any, shared: Path) -> None:
    facts = [json.loads(line) for line in (shared / "facts/op_schemas.jsonl").read_text().splitlines()]
    known = {f["op"]: f["schema"] for f in facts if f["from_op_plugin_branch"] == "26.0.0" and f["schema"]}
    registered = {schema.split("(")[0]: schema for schema in kernels.SCHEMAS}
    for name in ("npu_dynamic_quant", "npu_quant_matmul", "npu_grouped_matmul"):
        assert registered[name] == known[name]
