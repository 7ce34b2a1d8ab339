"""Layouts of tiling data against the unit tests of CANN, which give every field by name."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.read.plog.tiling_keys import read_tiling_key
from tilewatch.tasks.read.plog.tiling_layouts import decode_words, registered, size_of

CODES = {"94xint32": "i" * 94, "96xint32": "i" * 96, "64 bytes": "6I12H8B2I"}


def decoded_rows(shared: Path) -> Iterator[tuple[str, list[tuple[str, int]], dict[str, Any]]]:
    """Layout code, fields in memory order and the row, of every unit test whose layout is one of CODES."""
    with gzip.open(shared / "vectors" / "tiling" / "ut_qbmm_v3.jsonl.gz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            expected = row["expected"] or {}
            layout = expected.get("tiling_data_layout") or ""
            code = next((c for name, c in CODES.items() if name in layout), None)
            if code is None:
                continue
            fields: list[tuple[str, int]] = []
            for name, value in expected["tiling_data"].items():
                fields += value.items() if isinstance(value, dict) else [(name, value)]
            yield code, fields, row


def test_quant_matmul_of_every_unit_test_decodes_to_the_fields_the_test_names(shared: Path) -> None:
    seen = set()
    for code, fields, _ in decoded_rows(shared):
        packed = struct.pack("<" + code, *(value for _, value in fields))
        words = struct.unpack(f"<{len(packed) // 4}I", packed)
        named = decode_words("QuantBatchMatmulV3", words)
        assert named is not None
        assert list(named.fields.items()) == [(name, str(value)) for name, value in fields]
        seen.add(len(packed))
    assert seen == {376, 384, 64}


def test_every_layout_fills_the_size_it_is_registered_under() -> None:
    assert [(op, size) for op, size, layout in registered() if size_of(layout) != size] == []


def test_an_unknown_size_is_not_guessed() -> None:
    assert decode_words("QuantBatchMatmulV3", (0,) * 38) is None
    assert decode_words("GatherV3", (0,) * 22) is None


def test_arrays_of_grouped_matmul_are_one_field_without_trailing_zeros() -> None:
    words = [0] * 468
    words[0], words[11], words[34] = 16, 1024, 9216
    found = decode_words("GroupedMatmul", tuple(words))
    assert found is not None
    named = found.fields
    assert (named["groupNum"], named["singleN"], named["mList"], named["kList"]) == (
        "16",
        "1024",
        "9216",
        "0",
    )


@pytest.mark.parametrize(
    ("op_type", "key", "template"),
    [
        ("DynamicQuant", "100", "special_last_dim"),
        ("DynamicQuant", "10", "multi_row"),
        ("DynamicQuant", "2", "double_buffer"),
        ("DynamicQuantV2", "65", "full_load_double_buffer"),
        ("DynamicQuantV2", "64", "full_load"),
        ("DynamicQuantV2", "67", "large_shape"),
        ("DynamicQuantV2", "89", "large_multicore"),
        ("DynamicQuantV2", "97", "full_load_double_buffer"),
        ("DynamicQuantV2", "33", "full_load_double_buffer"),
        ("DynamicQuantV2", "32", "full_load"),
        ("DynamicQuantV2", "35", "large_shape"),
        ("DynamicQuantV2", "3", "double_buffer"),
        ("DynamicQuantV2", "12", None),
    ],
)
def test_the_key_of_dynamic_quant_names_its_template(op_type: str, key: str, template: str | None) -> None:
    assert read_tiling_key(op_type, key).ub_template == template


def test_grouped_matmul_and_matmul_keys_say_ratio_and_stream_k() -> None:
    assert read_tiling_key("GroupedMatmul", "34697052674").aiv_aic_ratio == "1:1"
    assert read_tiling_key("GroupedMatmul", str(34697052674 + (1 << 35))).aiv_aic_ratio == "2:1"
    assert read_tiling_key("GroupedMatmul", "7").aiv_aic_ratio is None
    assert read_tiling_key("MatMulV3", "4162", 88).stream_k is True
    assert read_tiling_key("MatMulV3", "66", 88).stream_k is False
    assert read_tiling_key("MatMulV3", "4162").stream_k is None
    assert read_tiling_key("QuantBatchMatmulV3", "24").stream_k is None
