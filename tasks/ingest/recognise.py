"""What a path holds: profiler output, logs, version files, serving results, by folder name and by content."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tilewatch.tasks.read.captures.serving_bench import EVALSCOPE
from tilewatch.tasks.read.host.npu_smi import looks_like_npu_smi
from tilewatch.tasks.read.host.version_files import read_version_file, split_collected
from tilewatch.tasks.read.plog.lines import HEADER
from tilewatch.tasks.read.profiler.profiler_files import kind_of
from tilewatch.tasks.read.tabular.plain_copy import plain_head, plain_name


class Kind(StrEnum):
    """What is recognised. The value is the folder of a capture where such files go."""

    PROFILER = "profiler"
    LOG = "log"
    ENVIRONMENT = "environment"
    SERVING = "serving"


@dataclass(frozen=True)
class Found:
    """One file. ``name`` is its place below the given path, with ``/``; ``root`` the profiler folder it is
    in.

    ``kind`` is None where the file is not recognised; ``reason`` then says why.
    """

    path: Path
    name: str
    kind: Kind | None
    root: str | None = None
    reason: str | None = None


# One run of a profiler: torch_npu, MindSpore, msprof, msprof op.
_ROOT = re.compile(r".+_ascend_(pt|ms)|PROF_.+|OPPROF_.+")
_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_SUMMARY_FOLDERS = {"mindstudio_profiler_output", "summary", "timeline"}
_LOG_NAME = re.compile(r"(plog|device|host|slogd|event)-.*\.log")
_EVALSCOPE = EVALSCOPE.encode()
_HEAD_BYTES = 1 << 16
_HEAD_LINES = 200
_VERSION_FILE_BYTES = 1 << 20


def recognise(given: Path) -> list[Found]:
    """All files of ``given`` (a folder or one file), sorted by name; links are named, not followed.

    Raises FileNotFoundError where there is nothing.
    """
    if not given.exists():
        raise FileNotFoundError(f"{given}: there is nothing")
    if given.is_file():
        return [_file(given, given.name, None)]
    folder = given.resolve()
    walked = _walk(folder, f"{folder.name}/", folder.name) if _is_root(folder) else _walk(folder, "", None)
    return sorted(walked, key=lambda found: found.name)


def _walk(folder: Path, below: str, root: str | None) -> Iterator[Found]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path, name = Path(entry.path), f"{below}{entry.name}"
            if entry.is_symlink():
                yield Found(path, name, None, reason="a link; only plain files are taken")
            elif entry.is_dir():
                inside = root if root is not None else (name if _is_root(path) else None)
                yield from _walk(path, f"{name}/", inside)
            elif entry.is_file():
                yield _file(path, name, root)
            else:
                yield Found(path, name, None, reason="no plain file")


def _is_root(folder: Path) -> bool:
    """A folder named by a profiler, or one that holds a profiler's output folder under any name."""
    return bool(_ROOT.fullmatch(folder.name)) or (folder / _OUTPUT).is_dir() or folder.name == _OUTPUT


def _file(path: Path, name: str, root: str | None) -> Found:
    if root is not None:
        return Found(path, name, Kind.PROFILER, root)
    if _LOG_NAME.fullmatch(plain_name(path.name)):
        return Found(path, name, Kind.LOG)
    try:
        head = plain_head(path, _HEAD_BYTES)
    except OSError as error:
        return Found(path, name, None, reason=f"cannot be read: {error}")
    if any(HEADER.match(line) for line in head.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]):
        return Found(path, name, Kind.LOG)
    if _is_serving_result(head):
        return Found(path, name, Kind.SERVING)
    if (kind := kind_of(path.name)) is not None and kind.reader is not None:
        return Found(path, name, Kind.PROFILER, _loose_root(name))
    if _is_environment(path):
        return Found(path, name, Kind.ENVIRONMENT)
    reason = (
        "empty"
        if not path.stat().st_size
        else "neither profiler output, log, version file nor serving result"
    )
    return Found(path, name, None, reason=reason)


def _loose_root(name: str) -> str:
    """Profiler files outside a profiler's own folder: one run a folder."""
    folders = name.split("/")[:-1]
    if folders and folders[-1] in _SUMMARY_FOLDERS:
        folders.pop()
    return "/".join(folders)


def _is_environment(path: Path) -> bool:
    if path.stat().st_size > _VERSION_FILE_BYTES:
        return False
    text = path.read_bytes().decode("utf-8", "replace")
    parts = split_collected(str(path), text)
    return looks_like_npu_smi(text) or any(read_version_file(*part) is not None for part in parts)


def _is_serving_result(head: bytes) -> bool:
    """A result of a serving benchmark; only its beginning may be in ``head``, since details are long."""
    text = head.lstrip()
    if not text.startswith((b"{", b"[")):
        return False
    try:
        found = json.loads(text.split(b"\n", 1)[0])
    except ValueError:
        return all(key in text for key in (b'"backend"', b'"duration"', b'"completed"')) or _EVALSCOPE in text
    return isinstance(found, dict) and ({"completed", "duration"} <= found.keys() or EVALSCOPE in found)
