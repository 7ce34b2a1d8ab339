"""Where the restated host code stands: repository file and function of a branch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("sources.yaml")
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Source:
    """A place in CANN's sources; ``function`` is ``not recorded`` where only the file is known."""

    file: str
    function: str


def source_of(op_type: str, npu_arch: str, branch: str) -> Source:
    """The place of ``branch`` of an operator on an architecture; ``not recorded`` for one of no table."""
    own = _table().get(op_type.removesuffix("V2"), {}).get(npu_arch)
    if own is None:
        return Source(NOT_RECORDED, NOT_RECORDED)
    place = own.get("branches", {}).get(branch, own.get("function"))
    file, function = place if isinstance(place, list) else (own["file"], place)
    return Source(file, function or NOT_RECORDED)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["sources"]
    return table
