"""What a kernel's or an operator's name says: operator type, tiling key, sequence number.

Kernel binaries are named ``<Op>_<hash>[_high_performance]_<key>[_mix_aic|_mix_aiv]``; statically compiled
ones (``te_<op>_…__kernel0``, ``…_static_bin``, ``…_tvmbin``), super kernels and ``<<<>>>`` kernels carry no
key. aclnn names are ``<aclnn API>_<sequence>[_<kernel>AiCore|AiCPU]``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_HASHED = re.compile(
    r"(?P<op>[A-Za-z]\w*?)_[0-9a-f]{32}(?:_[a-z]+_[a-z]+)?"
    r"(?:_(?P<key>\d{1,20}))?(?:_mix_ai[cv])?"
)
# Custom kernels have no hash; short numbers at the end of a node's name (Add_35) are no key, so six digits.
_PLAIN = re.compile(r"(?P<op>[A-Za-z]\w*?)_(?P<key>\d{6,20})(?:_mix_ai[cv])?")
_TE = re.compile(r"te_(?P<op>(?:fused_op_)?[a-z0-9]+(?:_[a-z0-9]+)*?)_(?=[a-f]*\d)[0-9a-f]{4,}")
_NODE = re.compile(r"(?:[\d/_-]+_)?(?P<node>[A-Za-z]\w*?)(?:_tvmbin|_static_bin)?")
_ACLNN = re.compile(r"(?P<l2>[^:]+?)_(?P<sequence>\d{1,18})(?:_(?P<l0>[^:]+))?")
_UINT64_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class KernelName:
    """Operator type and tiling key (decimal digits) as far as the name has them.

    ``node`` is the operator's name in its graph, where the kernel is named after that.
    """

    op_type: str | None
    tiling_key: str | None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class OpName:
    """``OpName:[…]`` in parts. ``op_type`` is None where the name has only the API."""

    api: str | None
    sequence: str | None
    op_type: str | None


@lru_cache(maxsize=4096)
def read_kernel_name(name: str) -> KernelName:
    """Take a kernel name apart. A key beyond 64 bits is no key."""
    for pattern in (_HASHED, _PLAIN):
        if found := pattern.fullmatch(name):
            key = found["key"]
            if key is not None and int(key) > _UINT64_MAX:
                key = None
            return KernelName(found["op"], key)
    if name.startswith(("te_superkernel", "_Z")):
        return KernelName(None, None)
    if found := _TE.match(name):
        return KernelName(found["op"], None)
    found = _NODE.fullmatch(name)
    return KernelName(None, None, found["node"] if found else None)


@lru_cache(maxsize=4096)
def read_op_name(name: str) -> OpName:
    """Take ``OpName:[…]`` apart: ``aclnnMatmul_1001_MatMulV3AiCore``, ``MatMulV3:MatMulV3``."""
    if ":" in name:
        return OpName(None, None, name.split(":", 1)[0] or None)
    if (found := _ACLNN.fullmatch(name)) and name.startswith("acl"):
        return OpName(found["l2"], found["sequence"], kernel_op_type(found["l0"]))
    return OpName(None, None, name or None)


def kernel_op_type(kernel: str | None) -> str | None:
    """``MatMulV3AiCore`` → ``MatMulV3``; None where the name does not end in a core kind."""
    if kernel is None:
        return None
    for core in ("AiCore", "AiCPU", "AICPU"):
        if kernel.endswith(core) and len(kernel) > len(core):
            return kernel[: -len(core)]
    return None
