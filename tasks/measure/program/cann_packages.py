"""CANN as it is installed: version files of its packages, torch_npu's answers, and the bytes that tile.

Since CANN 8.5 host tiling lies in operator packages with versions of their own, and packages built from
source carry a version that lies, so the libraries that decide are part of the build by their sha256.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import select
import signal
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

TOOLKIT_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH")
TOOLKIT_FILES = (
    "version.cfg", "*/version.info", "share/info/*/version.info", "ascend_*_install.info",
    "*/ascend_*_install.info",
)  # fmt: skip
CUSTOM_VARIABLE = "ASCEND_CUSTOM_OPP_PATH"
ASKED = ("ops_nn", "ops_transformer", "ops_legacy", "opbase", "runtime")
"""Packages that torch_npu answers for since 2.7.1.post (GetCANNInfo.cpp); older ones know none of them."""

HOST_LIBRARIES = (
    "built-in/op_impl/ai_core/tbe/op_host/lib/linux/{arch}/libophost_*.so",
    "built-in/op_impl/ai_core/tbe/op_tiling/lib/linux/{arch}/libop*.so",
)
"""Below opp: those of operator packages since 8.5, and liboptiling and libopmaster of the one opp before."""

ANSWER_TIMEOUT_S = 20
SHOWN_DIGITS = 16
_VERSION = re.compile(
    r"^\s*(?:version|Version|innerversion|Innerversion|\w+_running_version)\s*=\s*\[?([^\s\]]+)", re.MULTILINE
)
_TIMESTAMP = re.compile(r"^timestamp=(\S+)", re.MULTILINE)
_PRIORITY = re.compile(r"^load_priority\s*=\s*(.+)", re.MULTILINE)


def version_files() -> Dict[str, str]:
    """Raw text of every version file of CANN, by its path below the toolkit, the same on every host."""
    found: Dict[str, str] = {}
    for root in toolkit_roots():
        for pattern in TOOLKIT_FILES:
            for path in sorted(root.glob(pattern)):
                name = path.relative_to(root).as_posix()
                found.setdefault(name, path.read_text(encoding="utf-8", errors="replace"))
    return found


def stated_versions(files: Dict[str, str]) -> Dict[str, str]:
    """Versions that version files state, by file; when a package was built, as ``<file> timestamp``."""
    found = {}
    for name, text in files.items():
        if versions := _VERSION.findall(text):
            found[name] = " ".join(dict.fromkeys(versions))
        if stamp := _TIMESTAMP.search(text):
            found[f"{name} timestamp"] = stamp[1]
    return found


def answered_versions(ask: Callable[[str], str], names: Sequence[str] = ASKED) -> Dict[str, str]:
    """What ``ask`` answers for every name it knows.

    Each answer comes from a forked process: in some versions an unknown name ends the process that asks.
    """
    found: Dict[str, str] = {}
    left = list(names)
    while left:
        answers = _in_a_child(ask, left)
        found.update({left[place]: answer for place, answer in enumerate(answers) if answer})
        left = left[len(answers) + 1 :]  # the name after the last answer killed the child, or there is none
    return found


def host_libraries() -> Dict[str, str]:
    """sha256 of every library that holds host tiling, as ``host_library <file>``."""
    found: Dict[str, str] = {}
    for opp in _opp_roots():
        for pattern in HOST_LIBRARIES:
            for path in sorted(opp.glob(pattern.format(arch=platform.machine()))):
                found.setdefault(f"host_library {path.name}", _digest_of((path,), path.parent))
    return found


def custom_packages() -> Dict[str, str]:
    """Version and sha256 over all files of every custom operator package, as ``custom_ops <folder>``.

    Their load priority below ``opp/vendors`` stands beside them: it decides which of two equal operators
    runs.
    """
    found: Dict[str, str] = {}
    for folder in _custom_folders():
        files = tuple(sorted(path for path in folder.rglob("*") if path.is_file()))
        name, number = f"custom_ops {folder.name}", 2
        while name in found:
            name, number = f"custom_ops {folder.name} {number}", number + 1
        found[name] = " ".join([*_own_version(folder), _digest_of(files, folder)])
    for opp in _opp_roots():
        config = opp / "vendors/config.ini"
        text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
        if order := _PRIORITY.search(text):
            found.setdefault("custom_ops priority", order[1].strip())
    return found


def toolkit_roots() -> List[Path]:
    """Folders that the environment names as CANN's, each once, in the order CANN itself prefers."""
    named = (os.environ.get(variable) for variable in TOOLKIT_VARIABLES)
    roots = [Path(name) for name in named if name]
    return list({root.resolve(): root for root in reversed(roots)}.values())[::-1]


def _opp_roots() -> List[Path]:
    named = os.environ.get("ASCEND_OPP_PATH")
    roots = [Path(named)] if named else []
    roots += [root / "opp" for root in toolkit_roots()]
    there = [root for root in roots if root.is_dir()]
    return list({root.resolve(): root for root in there}.values())


def _custom_folders() -> Iterator[Path]:
    named = [Path(name) for name in os.environ.get(CUSTOM_VARIABLE, "").split(":") if name]
    vendors = [path for opp in _opp_roots() for path in sorted((opp / "vendors").glob("*"))]
    seen = set()
    for folder in [*named, *vendors]:
        if folder.is_dir() and folder.resolve() not in seen:
            seen.add(folder.resolve())
            yield folder


def _own_version(folder: Path) -> List[str]:
    file = folder / "version.info"
    if not file.is_file():
        return []
    return _VERSION.findall(file.read_text(encoding="utf-8", errors="replace"))[:1]


def _digest_of(files: Tuple[Path, ...], root: Path) -> str:
    """First digits of sha256 over names and contents; one file's is the sha256 of its bytes."""
    if len(files) == 1 and files[0].parent == root:
        return _file_digest(files[0])[:SHOWN_DIGITS]
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root).as_posix()}\0{_file_digest(path)}\0".encode())
    return digest.hexdigest()[:SHOWN_DIGITS]


def _file_digest(path: Path) -> str:
    state = path.stat()
    return _read_digest(str(path), state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=None)
def _read_digest(path: str, size: int, changed_ns: int) -> str:
    """sha256 of a file, read once as long as its size and time stay."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _in_a_child(ask: Callable[[str], str], names: Sequence[str]) -> List[str]:
    """Answers in order, as far as the child lived; blank where it had none to give."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            for name in names:
                os.write(writer, (_one_line(ask, name) + "\n").encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        text = _until_closed(reader)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return text.split("\n")[:-1]


def _one_line(ask: Callable[[str], str], name: str) -> str:
    try:
        return " ".join(str(ask(name) or "").split())
    except Exception:  # a version of torch_npu may refuse a name that it does not know
        return ""


def _until_closed(reader: int) -> str:
    parts: List[bytes] = []
    while select.select([reader], [], [], ANSWER_TIMEOUT_S)[0]:
        part: Optional[bytes] = os.read(reader, 4096)
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode(errors="replace")
