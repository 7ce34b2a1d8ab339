"""Platforms and CANN versions, read from their tables: what host tiling knows besides the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tilewatch.tasks.predict.errors import PredictError

Known = TypeVar("Known")

FOLDER = Path(__file__).parent
DAV_2201 = "2201"
DAV_3510 = "3510"


@dataclass(frozen=True)
class Platform:
    """One SoC as host tiling sees it. Cores are those reported at run time: core limiting shrinks them."""

    name: str
    npu_arch: str
    cube_cores: int
    vector_cores: int
    cube_mhz: int
    ub_bytes: int
    l1_bytes: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    bt_bytes: int
    l2_bytes: int

    def limited(self, cube_cores: int, vector_cores: int | None = None) -> Platform:
        """The same SoC with fewer cores reported; vector cores keep the ratio unless given."""
        per_cube = self.vector_cores // self.cube_cores
        vectors = cube_cores * per_cube if vector_cores is None else vector_cores
        asked_for = (
            ("cube_cores", cube_cores, self.cube_cores),
            ("vector_cores", vectors, self.vector_cores),
        )
        for field, asked, most in asked_for:
            if not 1 <= asked <= most:
                raise PredictError(field, f"{asked}: {self.name} has 1 to {most}")
        return replace(self, cube_cores=cube_cores, vector_cores=vectors)


@dataclass(frozen=True)
class CannVersion:
    """One CANN release: the switches that changed between releases. Meanings stand in the table's head."""

    name: str
    dynamic_quant_small_m: bool
    dynamic_quant_mode_bits: int
    dynamic_quant_split_rows: bool
    quant_matmul_decode: str
    quant_matmul_basic_other_cores: bool
    quant_matmul_tensor_api: bool
    quant_matmul_cache_words: bool
    grouped_matmul_code: str

    def without_tensor_api(self) -> CannVersion:
        """The same release beside an asc-devkit older than 9.1.0."""
        return replace(self, quant_matmul_tensor_api=False)


def platform(name: str) -> Platform:
    """The platform of an ini name such as ``Ascend910_9391``; PredictError lists the known ones."""
    return _pick("soc", name, _platforms())


def cann_version(name: str) -> CannVersion:
    """The release ``name``, for example ``9.1.0``; PredictError lists the known ones."""
    return _pick("cann", name, _versions())


def platform_names() -> tuple[str, ...]:
    """Known SoC names, in the order of the table."""
    return tuple(_platforms())


def cann_version_names() -> tuple[str, ...]:
    """Known CANN versions, oldest first."""
    return tuple(_versions())


@cache
def _platforms() -> Mapping[str, Platform]:
    table = _read("platforms.yaml")
    found: dict[str, Platform] = {}
    for group in table["platforms"]:
        own = {key: value for key, value in group.items() if key not in ("names", "note")}
        values = table["arch"][group["npu_arch"]] | own
        for name in group["names"]:
            found[name] = Platform(name=name, **values)
    return found


@cache
def _versions() -> Mapping[str, CannVersion]:
    known = {field.name for field in fields(CannVersion)}
    return {
        name: CannVersion(name=name, **{key: value for key, value in row.items() if key in known})
        for name, row in _read("cann_versions.yaml")["versions"].items()
    }


def _read(file_name: str) -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load((FOLDER / file_name).read_text(encoding="utf-8"))
    return table


def _pick(field: str, name: str, known: Mapping[str, Known]) -> Known:
    if name not in known:
        raise PredictError(field, f"{name!r} is unknown; known: {', '.join(known)}")
    return known[name]
