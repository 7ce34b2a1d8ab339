"""Mock CANN trees: the version files that install scripts write, and libraries whose bytes stand for code."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

ARCH = platform.machine()
OPERATOR_PACKAGES = ("ops_nn", "ops_transformer")
PACKAGES = ("runtime", "opbase", "ops-legacy", *OPERATOR_PACKAGES)
OLD_PACKAGES = ("runtime", "compiler", "hccl", "opp", "toolkit", "opp_kernel")
RELEASES = ("8.0.0", "8.2.RC1", "8.5.0", "9.0.0", "9.1.0")


def cann_tree(root: Path, release: str, packages: Mapping[str, str] | None = None) -> Path:
    """A tree of ``release`` below ``root``; ``packages`` are operator packages of other versions on top."""
    if release == "8.0.0":
        _old(root, release, "7.6.0.1.220")
        lines = [f"{p}_running_version=[7.6.0.1.220:{release}]" for p in OLD_PACKAGES]
        _write(root / "version.cfg", "# version: 1.0", *lines)
    elif release == "8.2.RC1":
        _old(root, release, "8.2.0.0.201")
    else:
        for package in PACKAGES:
            version = (packages or {}).get(package, release)
            _package(root / "share/info" / package, version, f"cann-{release}")
        for package in OPERATOR_PACKAGES:
            library(root, package, f"host tiling of {package} {(packages or {}).get(package, release)}")
    for folder in ("runtime", "compiler", "opp"):  # torch_npu refuses a CANN without them
        (root / folder).mkdir(parents=True, exist_ok=True)
    installed = root / f"{ARCH}-linux/ascend_toolkit_install.info"
    _write(installed, "package_name=Ascend-cann-toolkit", f"version={release}", f"arch={ARCH}", "os=linux")
    return root


def library(root: Path, package: str, code: str) -> Path:
    """The host tiling library of an operator package, with ``code`` as its bytes."""
    name = f"lib{package.replace('ops', 'ophost')}.so"
    path = root / "opp/built-in/op_impl/ai_core/tbe/op_host/lib/linux" / ARCH / name
    _write(path, code)
    return path


def custom_package(folder: Path, code: str) -> Path:
    """A custom operator package of one library, as a .run file installs it."""
    _package(folder, "9.2.0-beta.2", "cann-9.1.0")
    _write(folder / f"op_impl/ai_core/tbe/op_tiling/lib/linux/{ARCH}/libcust_opmaster_rt2.0.so", code)
    return folder


def _old(root: Path, release: str, number: str) -> None:
    """Up to 8.3 packages lie side by side and count apart from CANN."""
    for package in OLD_PACKAGES:
        _package(root / package, number, release)
    folder = root / "opp/built-in/op_impl/ai_core/tbe/op_tiling/lib/linux" / ARCH
    for name in ("liboptiling.so", "libopmaster_rt2.0.so"):
        _write(folder / name, f"{name} {release}")


def _package(folder: Path, version: str, directory: str) -> None:
    _write(
        folder / "version.info", f"Version={version}", f"version_dir={directory}", "timestamp=20260801_101010"
    )


def _write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
