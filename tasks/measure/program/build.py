"""The identity of the software under test for the cpu agent, and the hash that names it."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Dict, Mapping

KERNEL_FILES = ("cpu_kernels.py", "int8_product.py", "nz.py", "products.py")


def components() -> Dict[str, str]:
    """Every component whose change makes another build. Imports torch."""
    import int8_product
    import numpy
    import torch

    return {
        "torch": str(torch.__version__),
        "torch_git": str(torch.version.git_version),
        "numpy": str(numpy.__version__),
        "python": platform.python_version(),
        "kernels": _kernels_hash(),
        "int8_product": int8_product.route(),
    }


def build_id(parts: Mapping[str, str]) -> str:
    """First 16 hex digits of sha256 over the canonical JSON (sorted keys, no blanks) of the components."""
    text = json.dumps(dict(parts), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _kernels_hash() -> str:
    digest = hashlib.sha256()
    for name in KERNEL_FILES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:16]
