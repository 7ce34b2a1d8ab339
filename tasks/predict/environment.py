"""Platforms and CANN releases, read from their tables: what host tiling knows besides the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tilewatch.tasks.builds.packages import OPERATOR_PACKAGES, OPS_NN, OPS_TRANSFORMER
from tilewatch.tasks.builds.spelling import normal
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


def cann_version(text: str, npu_arch: str | None = None) -> CannVersion:
    """The release that ``text`` names, in any spelling: ``9.1.0``, ``9.0.1``, ``9.2.0.beta2``.

    ``9.1.0,ops_transformer=9.2.0-beta.2`` is CANN 9.1.0 with an operator package of another release. An alias
    that holds on some architectures alone needs ``npu_arch``. PredictError says why a release is unknown.
    """
    base, *others = (part.strip() for part in text.split(","))
    found = release(base, npu_arch).code
    for other in others:
        package, _, stated = other.partition("=")
        if package not in OPERATOR_PACKAGES or not stated:
            packages = " or ".join(f"{name}=RELEASE" for name in OPERATOR_PACKAGES)
            raise PredictError("cann", f"{other!r}: after the release stands {packages}")
        own = release(stated, npu_arch).code
        changed = {f.name: getattr(own, f.name) for f in fields(own) if _package_of(f.name) == package}
        found = replace(found, **changed)
    return replace(found, name=",".join([normal(base), *others]))


def _package_of(switch: str) -> str | None:
    if switch == "name":
        return None
    return OPS_TRANSFORMER if switch.startswith("grouped_matmul") else OPS_NN


@dataclass(frozen=True)
class KnownRelease:
    """A release with the code that it runs; ``proof`` says by operator package why an alias is that code."""

    code: CannVersion
    proof: Mapping[str, str]


def release(text: str, npu_arch: str | None = None) -> KnownRelease:
    """One release in any spelling, by its own row or as an alias. PredictError says why it is unknown."""
    name, table = normal(text), _read("cann_versions.yaml")
    if name in _versions():
        return KnownRelease(_versions()[name], {})
    alias = table["aliases"].get(name)
    if alias and (npu_arch in alias.get("npu_archs", (npu_arch,))):
        proof = {package: alias[package] for package in OPERATOR_PACKAGES}
        return KnownRelease(replace(_versions()[alias["same_as"]], name=name), proof)
    if why := table["unknown"].get(name):
        raise PredictError("cann", f"{name} cannot be predicted: {why}")
    known = ", ".join([*_versions(), *table["aliases"]])
    raise PredictError("cann", f"{text!r} is unknown; known: {known}")


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


def alias_names() -> tuple[str, ...]:
    """Releases that are another one's code, in the order of the table."""
    return tuple(_read("cann_versions.yaml")["aliases"])


@cache
def _read(file_name: str) -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load((FOLDER / file_name).read_text(encoding="utf-8"))
    return table


def _pick(field: str, name: str, known: Mapping[str, Known]) -> Known:
    if name not in known:
        raise PredictError(field, f"{name!r} is unknown; known: {', '.join(known)}")
    return known[name]
