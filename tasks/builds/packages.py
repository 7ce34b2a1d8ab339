"""Operator packages of a build: which version each has, and where they are of another release than CANN.

Components come in two vocabularies: the measuring program names version files by their path, a reader of
somebody's files by the package. Both are read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewatch.tasks.builds.spelling import version_of

OPS_NN, OPS_TRANSFORMER, CANN = "ops_nn", "ops_transformer", "cann"
OPERATOR_PACKAGES = (OPS_NN, OPS_TRANSFORMER)
"""Packages whose host tiling is predicted; their version decides before CANN's."""

_ANSWERED = ("ops_nn", "ops_transformer", "ops_legacy", "opbase", "runtime")
_VERSION_FILE = re.compile(r"(?:share/info/)?([^/]+)/version\.info")
_TIMESTAMP = re.compile(r"(.+?)[ _]timestamp")
_READ = re.compile(r"package_(.+)")
_LIBRARY = re.compile(r"host_library libophost_(\w+)\.so")
_INSTALLED = re.compile(r"(?:[^/]+/)?ascend_toolkit_install\.info|version\.cfg")
_CONFIGURED = re.compile(r"^[^:\s]+:(\S+)$")
"""``7.6.0.1.220:8.0.0`` of version.cfg: the package's own number and the release of CANN."""

_STATED, _FILED, _STAMP, _HASHED = "version", "file", "timestamp", "library"


def part_of(component: str) -> tuple[str, str]:
    """The package that a component belongs to, and what it says of it; its own name where it is no package's.

    Example: ``part_of("share/info/ops-legacy/version.info")`` is ``("ops_legacy", "file")``.
    """
    if stamp := _TIMESTAMP.fullmatch(component):
        return part_of(stamp[1])[0], _STAMP
    if component == CANN or component in _ANSWERED:
        return component, _STATED
    if _INSTALLED.fullmatch(component):
        return CANN, _FILED
    for pattern in (_VERSION_FILE, _READ):
        if found := pattern.fullmatch(component):
            return found[1].replace("-", "_"), _FILED
    if library := _LIBRARY.fullmatch(component):
        return f"ops_{library[1]}", _HASHED
    return component, _STATED


def package_versions(components: Mapping[str, str]) -> dict[str, str]:
    """Version of every package of CANN that ``components`` state, as it is written there.

    What torch_npu answered holds before what the version file says; both read the same file.
    """
    found: dict[str, tuple[int, str]] = {}
    for name, value in components.items():
        package, says = part_of(name)
        rank = {_STATED: 0, _FILED: 1}.get(says)
        if rank is None or (rank == 0 and name not in (*_ANSWERED, CANN)):
            continue
        if package not in found or rank < found[package][0]:
            found[package] = rank, value
    return {package: _CONFIGURED.sub(r"\1", value) for package, (_, value) in sorted(found.items())}


def host_libraries(components: Mapping[str, str]) -> dict[str, str]:
    """sha256 digits of the host tiling library of each operator package that has one."""
    parts = {part_of(name): value for name, value in components.items()}
    return {package: value for (package, says), value in parts.items() if says == _HASHED}


def releases(components: Mapping[str, str]) -> dict[str, str]:
    """Normal form of CANN's version and of each operator package's, where they are stated."""
    versions = package_versions(components)
    kept = {name: versions[name] for name in (CANN, *OPERATOR_PACKAGES) if name in versions}
    return {name: version_of(text).release or text for name, text in kept.items()}


def release_text(components: Mapping[str, str]) -> str:
    """The releases of a build in one text, blank without any: CANN's, then packages that differ from it.

    Example: ``9.1.0,ops_transformer=9.2.0-beta.2``. ``predict diff`` and the upgrade flow read such texts.
    """
    own = releases(components)
    base = own.pop(CANN, "")
    return ",".join([base, *(f"{name}={release}" for name, release in own.items() if release != base)]).strip(
        ","
    )


def label_part(components: Mapping[str, str]) -> str:
    """The releases of a build as a part of its label: ``9.1.0-ops_transformer9.2.0-beta.2``."""
    return release_text(components).replace("=", "").replace(",", "-")


def mixes(components: Mapping[str, str]) -> list[str]:
    """One sentence for every operator package that is of another release than CANN's base."""
    own = releases(components)
    base = own.pop(CANN, None)
    if base is None:
        return []
    return [
        f"{package} {release} on CANN {base}: operators and base are of different releases, so their host "
        f"tiling is that of {package} {release}"
        for package, release in own.items()
        if release != base and version_of(release).known and version_of(base).known
    ]
