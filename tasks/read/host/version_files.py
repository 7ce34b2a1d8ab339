"""Version files of an Ascend host → components of a build. What a file is, its content says, not its name.

``ascend_*_install.info`` (toolkit, nnae, nnrt …), ``version.info`` of driver, firmware, ATB and CANN's
packages, ``version.cfg``; and ``profiler_info*.json``, into which torch_npu writes its own version and that
of CANN. Three numbering schemes occur: the CANN version (8.2.RC1), the inner version
(V100R001C22SPC001B231) and package versions (8.2.0.0.201); none is turned into another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

_ASSIGNMENT = re.compile(r"(\w+)=(.*)")
_COLON = re.compile(r"\s*([\w. -]+?)\s+:\s+(.*)")
_CONFIGURED = re.compile(r"(\w+)_(running|upgrade|installed)_version=\[([^:\]]*):([^\]]*)\]")
_COLLECTED = re.compile(r"cat (/\S+)\s*")
_PIP = re.compile(r"^(torch|torch[-_]npu)[ \t]+(\d\S*)[ \t]*\r?$", re.MULTILINE)
_ATB = "Ascend-cann-atb"
# Files without a name of their own inside: the folder they lie in is the package.
_NO_PACKAGE = {"", ".", "latest", "info"}


@dataclass(frozen=True)
class VersionFile:
    """One version file: its ``kind`` and what it adds to a build, component name → value."""

    kind: str
    path: str
    components: dict[str, str]


def split_collected(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Parts of a text that is a log of ``cat <path>`` commands; the text itself where it is none."""
    parts = _COLLECTED.split(text)
    if len(parts) == 1:
        yield path, text
        return
    yield from zip(parts[1::2], parts[2::2], strict=True)


def read_version_file(path: str, text: str) -> VersionFile | None:
    """Read one version file; None where the content is of no known kind.

    ``path`` is its place on the host or in the capture: it names the package of a CANN ``version.info``.
    """
    assigned = dict(_ASSIGNMENT.findall(text))
    for kind, reader in (
        ("install_info", _install_info),
        ("driver", _driver),
        ("firmware", _firmware),
        ("version_cfg", lambda a: _version_cfg(text)),
        ("package", lambda a: _package(path, a)),
        ("atb", lambda a: _atb(text)),
    ):
        if components := reader(assigned):
            return VersionFile(kind, path, components | _packages(text))
    if components := _profiler_info(text):
        return VersionFile("profiler_info", path, components)
    if packages := _packages(text):
        return VersionFile("pip_list", path, packages)
    return None


def _install_info(values: dict[str, str]) -> dict[str, str]:
    name = values.get("package_name", "")
    if not name or "version" not in values:
        return {}
    component = name.removeprefix("Ascend-").removeprefix("cann-").lower().replace("-", "_")
    component = "cann" if component == "toolkit" else component
    return _present(
        {
            component: values["version"],
            f"{component}_inner": values.get("innerversion"),
            "arch": values.get("arch"),
        }
    )


def _driver(values: dict[str, str]) -> dict[str, str]:
    if "ascendhal_version" not in values:
        return {}
    return _present({"driver": values.get("Version"), "driver_inner": values.get("Innerversion")})


def _firmware(values: dict[str, str]) -> dict[str, str]:
    if "firmware_version" not in values:
        return {}
    return _present({"firmware": values.get("Version"), "firmware_package": values.get("package_version")})


def _version_cfg(text: str) -> dict[str, str]:
    running = [(p, inner, cann) for p, state, inner, cann in _CONFIGURED.findall(text) if state == "running"]
    components = {f"package_{package}": inner for package, inner, _ in running}
    versions = {cann for *_, cann in running}
    if len(versions) == 1:
        components["cann"] = versions.pop()
    return components


def _package(path: str, values: dict[str, str]) -> dict[str, str]:
    if "Version" not in values or not {"version_dir", "timestamp"} & values.keys():
        return {}
    folder = PurePosixPath(path).parent.name
    package = "opp_kernel" if "ops_version" in values else ("" if folder in _NO_PACKAGE else folder)
    named = f"package_{package or 'unnamed'}"
    return _present(
        {
            named: values["Version"],
            f"{named}_timestamp": values.get("timestamp"),
            "cann": values.get("version_dir", "").removeprefix("cann-"),
        }
    )


def _atb(text: str) -> dict[str, str]:
    values = dict(reversed(_COLON.findall(text)))
    if _ATB not in values:
        return {}
    return _present({"atb": values[_ATB], "atb_commit": values.get("commit id")})


def _profiler_info(text: str) -> dict[str, str]:
    """CANN and torch_npu of a profiled process, which torch_npu states since 2025."""
    if '"torch_npu_version"' not in text and '"cann_version"' not in text:
        return {}
    try:
        info = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(info, dict):
        return {}
    named = {"cann": info.get("cann_version"), "torch_npu": info.get("torch_npu_version")}
    return _present({name: value for name, value in named.items() if isinstance(value, str)})


def _packages(text: str) -> dict[str, str]:
    return {name.replace("-", "_"): version for name, version in _PIP.findall(text)}


def _present(values: dict[str, str | None]) -> dict[str, str]:
    return {name: value.strip() for name, value in values.items() if value and value.strip()}
