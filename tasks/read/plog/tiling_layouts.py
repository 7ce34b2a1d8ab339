"""Layouts of tiling data: the names of the packed fields, by operator, size and CANN version.

A dump gives the raw 32-bit words of a C++ struct. Layouts are those of CANN 8.5.0–9.2; a struct without a
layout here stays as raw words under ``tiling_data``, never guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice


@dataclass(frozen=True, eq=False, slots=True)
class DecodedFields:
    """Named fields of one tiling, values as decimal text. The same words give the same object."""

    fields: Mapping[str, str]


# (names, struct code) runs in memory order; little-endian, no padding besides what is named.
Layout = tuple[tuple[tuple[str, ...], str], ...]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_QBMM_PARAMS = _names(
    """
    batchA batchB batchC batchA1 batchA2 batchA3 batchA4 batchB1 batchB2 batchB3 batchB4 batchC1
    batchC2 batchC3 batchC4 singleCoreBatch isPerTensor isPertoken isDoubleScale biasThreeDim
    ubCalcM ubCalcN needUbBuffer realSingleCoreM realSingleCoreN biasDtype ubSize isMClash isNClash
    groupSizeM groupSizeN groupSizeK
    """
)
_CUBE = _names(
    """
    usedCoreNum M N Ka Kb singleCoreM singleCoreN singleCoreK baseM baseN baseK depthA1 depthB1
    stepM stepN isBias transLength iterateOrder shareMode shareL1Size shareL0CSize shareUbSize
    batchM batchN singleBatchM singleBatchN stepKa stepKb depthAL1CacheUB depthBL1CacheUB dbL0A
    dbL0B dbL0C ALayoutInfoB ALayoutInfoS ALayoutInfoN ALayoutInfoG ALayoutInfoD BLayoutInfoB
    BLayoutInfoS BLayoutInfoN BLayoutInfoG BLayoutInfoD CLayoutInfoB CLayoutInfoS1 CLayoutInfoN
    CLayoutInfoG CLayoutInfoS2 BatchNum mxTypePara
    """
)
_L2_TILE = ("mTileCntL2", "nTileCntL2", "mTileBlock", "nTileBlock", "calOrder", "isBasicTiling")
_SLIDING = ("mTailTile", "nTailTile", "mBaseTailSplitCnt", "nBaseTailSplitCnt", "mTailMain", "nTailMain")
_QBMM_TAIL: Layout = ((_CUBE, "i"), (_L2_TILE, "i"), (_SLIDING, "i"))

# 2201 of all versions and 3510 up to 9.1.0 share 94 words; later 3510 has two more after the parameters.
_QBMM_94: Layout = ((_QBMM_PARAMS, "i"), *_QBMM_TAIL)
_QBMM_96: Layout = ((_QBMM_PARAMS, "i"), (("l2CacheDisable", "reserved"), "i"), *_QBMM_TAIL)
_QBMM_NO_BATCH: Layout = (
    (("m", "n", "k", "kAL1", "kBL1", "scaleKL1"), "I"),
    (("baseM", "baseN", "baseK", "groupSizeM", "groupSizeN", "groupSizeK", *_SLIDING), "H"),
    (("x1QuantMode", "x2QuantMode", "isBias", "biasDtype", "nBufferNum", "dbL0C", "weightMustHitL2"), "B"),
    (("reserved0",), "B"),
    (("reserved1", "reserved2"), "I"),
)
_MATMUL_HEAD: Layout = (
    (
        _names(
            """
    usedCoreNum m n k mL1 nL1 kL1 baseM baseN baseK skSingleCoreK mTailCnt nTailCnt
    mBaseTailSplitCnt nBaseTailSplitCnt mTailMain nTailMain
    """
        ),
        "I",
    ),
    (("mmadParam", "l1BufferNum", "l0cDB", "ubDB"), "B"),
)
_MATMUL_3510: Layout = (*_MATMUL_HEAD, (("l2CacheDisable", "sliceM", "srcNdStride", "innerBatch"), "I"))
_MATMUL_3510_STRIDED: Layout = (
    *_MATMUL_HEAD,
    (("l2CacheDisable", "sliceM", "srcNdStride", "rowStride", "innerBatch"), "I"),
)
_GMM_BASE: Layout = (
    (_names("groupNum coreNum activeType ubBaseK ubBaseN ubCalSize ubRestBytes singleWeight"), "I"),
    (("singleX", "singleY"), "I"),
    (("groupType",), "i"),
    (("singleN", "quantParam", "groupListType", "m", "hasBias"), "I"),
    (_names("workspaceSize totalInGroup k n vBaseM parallNum quantGroupNum isPreTiling"), "Q"),
)
# "name[128]" is an array: one field, its values joined by commas, trailing zeros left out.
_GMM_REST: Layout = ((("mList[128]", "kList[128]", "nList[128]"), "i"), (_CUBE, "i"))
_GMM: Layout = (*_GMM_BASE, *_GMM_REST)
_GMM_OFFSET: Layout = (*_GMM_BASE, (("withOffset", "isOutputDisableL2Cache"), "I"), *_GMM_REST)
_DYNAMIC_QUANT_HEAD = _names(
    """
    coreNum rowLen headCoreNum rowPerHeadCore rowPerTailCore multiRowNumHeadCore multiRowNumTailCore
    innerLoopEle innerLoopTimes innerLoopTail groupNum alignGroupNum hasSmooth unused ubSize
    """
)
_DYNAMIC_QUANT: Layout = (
    (_DYNAMIC_QUANT_HEAD, "I"),
    (tuple(f"word{i}" for i in range(15, 26)), "I"),  # used on 310P only
    (tuple(f"perChannel{i}" for i in range(17)), "q"),
)

_LAYOUTS: dict[tuple[str, int], Layout] = {
    ("QuantBatchMatmulV3", 376): _QBMM_94,
    ("QuantBatchMatmulV4", 376): _QBMM_94,
    ("QuantBatchMatmulV3", 384): _QBMM_96,
    ("QuantBatchMatmulV3", 64): _QBMM_NO_BATCH,
    ("MatMulV3", 88): _MATMUL_3510,
    ("MatMulV3", 92): _MATMUL_3510_STRIDED,
    ("GroupedMatmul", 1864): _GMM,
    ("GroupedMatmul", 1872): _GMM_OFFSET,
    ("DynamicQuant", 240): _DYNAMIC_QUANT,
    ("DynamicQuantV2", 240): _DYNAMIC_QUANT,
}


def size_of(layout: Layout) -> int:
    """Bytes of a struct with this layout."""
    return sum(_count(name) * struct.calcsize("<" + code) for names, code in layout for name in names)


@lru_cache(maxsize=1024)
def decode_words(op_type: str, words: tuple[int, ...]) -> DecodedFields | None:
    """Named fields of the tiling data of ``op_type``, values as decimal text; None where no layout is known.

    ``words`` are unsigned 32-bit words in memory order; the fields are in memory order too.
    """
    layout = _LAYOUTS.get((op_type, 4 * len(words)))
    if layout is None:
        return None
    names = [name for run, _ in layout for name in run]
    code = "<" + "".join(f"{_count(name)}{kind}" for run, kind in layout for name in run)
    values = iter(struct.unpack(code, struct.pack(f"<{len(words)}I", *words)))
    return DecodedFields({n.split("[")[0]: _text(islice(values, _count(n))) for n in names})


def registered() -> tuple[tuple[str, int, Layout], ...]:
    """All (operator, size in bytes, layout)."""
    return tuple((op, size, layout) for (op, size), layout in _LAYOUTS.items())


def _count(name: str) -> int:
    return int(name[name.index("[") + 1 : -1]) if name.endswith("]") else 1


def _text(values: Iterable[int]) -> str:
    numbers = list(values)
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return ",".join(map(str, numbers))
