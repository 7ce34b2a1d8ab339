"""Field lines that single operators print while tiling: text → named fields, one reader a kind of line.

Texts are those of CANN 8.5.0–9.2 (GroupedMatmul, DynamicQuant, QuantBatchMatmulV3, MatMulV3) and the print of
the AscendC matmul tiling.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_PAIR = re.compile(r"(\w+): ?(-?\d{1,18}(?:\.\d{1,18})?)")
_EQUALS = re.compile(r"(\w+)= ?(-?\w+)")
_GROUPED = re.compile(r"(\w+?)_? is (-?\d{1,18})")
_CUBE_PRINT = re.compile(r"MatmulTiling: (\w+)\s*= (-?\d{1,18})")
_MKN = re.compile(
    r"MKN\[(\d{1,18}), (\d{1,18}), (\d{1,18})\], transA\[(\w+)\], transB\[(\w+)\], bias\[(\w+)\]",
)
_BASES = re.compile(r"baseM baseN baseK: (\d{1,18}) (\d{1,18}) (\d{1,18})")
_ENABLE = re.compile(r"MatMulV3 tiling enable state is (\w+)")
_WORKSPACE = re.compile(r"MatMulV3 tiling workspace size is (\d{1,18})")
_KEY_LOW_BITS = re.compile(r"Tiling Key is 0x([0-9a-fA-F]+)")
_REGBASE_KEY = re.compile(r"tilingKey is (\d{1,18})")


@dataclass(frozen=True, slots=True)
class OpFields:
    """Fields of one line. ``op_type`` is None where only the line's own name of the operator tells it.

    ``begins``: the line opens a tiling. ``restates``: it may repeat fields of an earlier line of the same
    tiling.
    """

    op_type: str | None
    fields: dict[str, str]
    begins: bool = False
    restates: bool = False


def read_op_line(marker: str, text: str) -> OpFields | None:
    """Fields in ``text``, which carries ``marker``; None where it is not the marker's line."""
    return _READERS[marker](text[text.index(marker) :]) if marker in text else None


def _grouped_matmul(text: str) -> OpFields | None:
    fields = dict(_GROUPED.findall(text))
    if not fields:
        return None
    restates = text.startswith("GMM_tiling_new")
    return OpFields("GroupedMatmul", fields, begins="groupNum" in fields and not restates, restates=restates)


def _dynamic_quant_data(text: str) -> OpFields | None:
    fields = dict(_PAIR.findall(text))
    return OpFields(None, fields) if "rowLen" in fields else None


def _dynamic_quant_rows(text: str) -> OpFields | None:
    fields = dict(_PAIR.findall(text))
    return OpFields(None, fields, begins=True) if "vectorCoreNum" in fields else None


def _dynamic_quant_key(text: str) -> OpFields | None:
    found = _REGBASE_KEY.search(text)
    return OpFields(None, {"regbaseTilingKey": found[1]}, begins=True) if found else None


def _quant_matmul_shape(text: str) -> OpFields | None:
    found = _MKN.match(text)
    if found is None:
        return None
    names = ("m", "k", "n", "transA", "transB", "bias")
    return OpFields(None, dict(zip(names, found.groups(), strict=True)), begins=True)


def _quant_matmul_params(text: str) -> OpFields | None:
    fields = dict(_PAIR.findall(text.removeprefix("QuantBatchMatmulV3Params params:")))
    return OpFields(None, fields) if fields else None


def _quant_matmul_basic(text: str) -> OpFields | None:
    # The print misses blanks before m_size and step_n, so the value runs into the next name.
    spaced = re.sub(r"(\d)(m_size|step_n):", r"\1 \2:", text)
    fields = dict(_PAIR.findall(spaced))
    return OpFields(None, fields) if "base_m" in fields else None


def _stream_k(text: str) -> OpFields | None:
    fields = dict(_EQUALS.findall(text))
    return OpFields(None, {**fields, "streamK": "1"}) if "baseM" in fields else None


def _matmul_bases(text: str) -> OpFields | None:
    found = _BASES.match(text)
    return (
        OpFields(None, dict(zip(("baseM", "baseN", "baseK"), found.groups(), strict=True))) if found else None
    )


def _matmul_state(text: str) -> OpFields | None:
    if found := _ENABLE.match(text):
        return OpFields(None, {"enableState": found[1]})
    if found := _WORKSPACE.match(text):
        return OpFields(None, {"workspaceSize": found[1]})
    return None


def _matmul_key(text: str) -> OpFields | None:
    found = _KEY_LOW_BITS.match(text)
    return OpFields(None, {"tilingKeyLow32": str(int(found[1], 16))}) if found else None


def _cube_print(text: str) -> OpFields | None:
    found = _CUBE_PRINT.match(text)
    return OpFields(None, {found[1]: found[2]}, begins=found[1] == "M") if found else None


_READERS: dict[str, Callable[[str], OpFields | None]] = {
    "GMM_tiling": _grouped_matmul,
    "tilingData is coreNum:": _dynamic_quant_data,
    "rowNum:": _dynamic_quant_rows,
    "regbase tilingKey is": _dynamic_quant_key,
    "MKN[": _quant_matmul_shape,
    "QuantBatchMatmulV3Params params:": _quant_matmul_params,
    "basic tiling m_size": _quant_matmul_basic,
    "QBMM StreamK SetTilingData:": _stream_k,
    "baseM baseN baseK:": _matmul_bases,
    "MatMulV3 tiling ": _matmul_state,
    "Tiling Key is 0x": _matmul_key,
    "MatmulTiling: ": _cube_print,
}
OP_LINE_MARKERS = tuple(_READERS)
