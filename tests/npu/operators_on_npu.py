"""Runs the operators of the experiments on the NPU and saves inputs and results; started by the tests."""

from __future__ import annotations

import sys
import time

import torch
import torch_npu  # noqa: F401 - registers the operators

NZ = 29


def main(target: str) -> None:
    torch.manual_seed(7)
    torch.npu.config.allow_internal_format = True
    torch.save({**quant(), **matmul(), **grouped(), **copies(), **streams()}, target)


def quant() -> dict[str, object]:
    cases = []
    for m, k, n in ((1, 64, 32), (7, 128, 96), (33, 512, 256), (5, 100, 50)):
        x = torch.randn(m, k).to(torch.bfloat16)
        x[0] = 0  # a row without a scale
        w = torch.randint(-128, 128, (k, n), dtype=torch.int8)
        scale = torch.rand(n).to(torch.bfloat16)
        quantised, row_scale = torch.ops.npu.npu_dynamic_quant(x.npu())
        results = {}
        for name in ("nd", "nz"):
            weight = w.npu() if name == "nd" else torch.ops.npu.npu_format_cast(w.npu(), NZ)
            results[name] = torch.ops.npu.npu_quant_matmul(
                quantised, weight, scale.npu(), pertoken_scale=row_scale.flatten(), bias=None,
                output_dtype=torch.bfloat16,
            ).cpu()  # fmt: skip
            results[f"{name}_format"] = torch.ops.npu.get_npu_format(weight)
            results[f"{name}_back"] = weight.cpu()
        cases.append({"x": x, "w": w, "scale": scale, "q": quantised.cpu(), "s": row_scale.cpu(), **results})
    return {"quant": cases}


def matmul() -> dict[str, object]:
    x, w = torch.randn(9, 256).to(torch.bfloat16), torch.randn(256, 64).to(torch.bfloat16)
    nz = torch.ops.npu.npu_format_cast(w.npu(), NZ)
    return {"matmul": {
        "x": x, "w": w, "nd": torch.matmul(x.npu(), w.npu()).cpu(), "nz": torch.matmul(x.npu(), nz).cpu(),
    }}  # fmt: skip


def grouped() -> dict[str, object]:
    counts = [3, 0, 5]
    x = torch.randint(-128, 128, (sum(counts), 64), dtype=torch.int8)
    w = torch.randint(-128, 128, (3, 64, 32), dtype=torch.int8)
    scale, row_scale = torch.rand(3, 32).to(torch.bfloat16), torch.rand(sum(counts))
    results = {}
    for name, list_type, groups in (("counts", 1, counts), ("cumsum", 0, [3, 3, 8])):
        for layout in ("nd", "nz"):
            weight = w.npu() if layout == "nd" else torch.ops.npu.npu_format_cast(w.npu(), NZ)
            results[f"{name}_{layout}"] = torch.ops.npu.npu_grouped_matmul(
                x=[x.npu()], weight=[weight], scale=[scale.npu()], per_token_scale=[row_scale.npu()],
                split_item=2, group_type=0, group_list_type=list_type, group_list=torch.tensor(groups).npu(),
                output_dtype=torch.bfloat16, tuning_config=[2],
            )[0].cpu()  # fmt: skip
    x16, w16 = torch.randn(8, 64).to(torch.bfloat16), torch.randn(3, 64, 32).to(torch.bfloat16)
    results["bf16"] = torch.ops.npu.npu_grouped_matmul(
        x=[x16.npu()], weight=[w16.npu()], split_item=2, group_type=0, group_list_type=1,
        group_list=torch.tensor(counts).npu(), output_dtype=torch.bfloat16,
    )[0].cpu()  # fmt: skip
    given = {"x": x, "w": w, "scale": scale, "row_scale": row_scale, "x16": x16, "w16": w16}
    refused = ""
    try:
        torch.ops.npu.npu_grouped_matmul(
            x=[x.npu()], weight=[w.npu()], scale=[scale.npu()], per_token_scale=[row_scale.npu()],
            split_item=2, group_type=0, group_list_type=1, group_list=torch.tensor(counts).npu(),
            output_dtype=torch.bfloat16, tuning_config=[9],
        )  # fmt: skip
        torch.npu.synchronize()
    except RuntimeError as error:
        refused = str(error)
    return {"grouped": {"counts": counts, **given, **results, "hint_beyond_rows": refused}}


def copies() -> dict[str, object]:
    x = torch.randn(6, 10)
    return {"copies": {"x": x, "transposed": x.npu().t().contiguous().cpu(), "half": x.npu().half().cpu()}}


def streams() -> dict[str, object]:
    """Time by events, the state of an event right after enqueueing, and order across two streams."""
    x, w = torch.randn(256, 1024).to(torch.bfloat16).npu(), torch.randn(1024, 1024).to(torch.bfloat16).npu()
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    torch.npu.synchronize()
    start.record()
    clock = time.perf_counter()
    y = torch.matmul(x, w)
    enqueue_ms = 1000 * (time.perf_counter() - clock)
    end.record()
    pending = not end.query()
    other = torch.npu.Stream()
    with torch.npu.stream(other):
        other.wait_event(end)
        z = torch.matmul(y, w)
    torch.npu.synchronize()
    expected = torch.matmul(torch.matmul(x, w), w).cpu()
    return {"streams": {
        "elapsed_ms": start.elapsed_time(end), "enqueue_ms": enqueue_ms, "pending": pending,
        "ordered": torch.equal(z.cpu(), expected), "pinned": torch.zeros(4).pin_memory().is_pinned(),
    }}  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
