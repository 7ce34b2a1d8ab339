"""A file that was packed, saved in UTF-16 or as a spreadsheet, as the plain file that a reader expects.

What a file is, its first bytes say; its name only says under which name the plain file would have gone. The
copy goes to a temporary folder and never into a capture.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import lzma
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from python_calamine import CalamineError, load_workbook

from tilewatch.data_contracts.errors import TilewatchError

SUFFIXES = (".gz", ".zst", ".xz")
SHEET = ".xlsx"
LARGEST_BYTES = 64 << 30
"""A file that unpacks to more is refused, as ``tasks.collect.unpack`` refuses such an archive."""

_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEAD_BYTES = 64
_COPY_BYTES = 1 << 20


class NotPlainError(TilewatchError):
    """A file that cannot be made plain; the message says what it looked like and what is wrong with it."""


@dataclass(frozen=True)
class Plain:
    """The file to read, and in words what was done to get it."""

    path: Path
    found: tuple[str, ...] = ()


def plain_name(name: str) -> str:
    """The name without what packing or a spreadsheet appended: ``kernel_details.csv.gz``, ``….xlsx``."""
    lower = name.lower()
    for suffix in SUFFIXES:
        if lower.endswith(suffix):
            return plain_name(name[: -len(suffix)])
    return f"{name[: -len(SHEET)]}.csv" if lower.endswith(SHEET) else name


@contextmanager
def plain_copy(path: Path, folder: Path | None = None) -> Iterator[Plain]:
    """``path`` itself where it is plain, else a plain copy in ``folder`` for the block.

    Raises NotPlainError where the file is damaged or unpacks to more than ``LARGEST_BYTES``.
    """
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if _step(path, head) is None:
        yield Plain(path)
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plain-") as work:
        here, found = path, list[str]()
        while (step := _step(here, head)) is not None and len(found) < 3:
            target = Path(work) / f"{len(found)}-{plain_name(here.name)}"
            found.append(_made(here, target, step))
            here = target
            with here.open("rb") as stream:
                head = stream.read(_HEAD_BYTES)
        yield Plain(here, tuple(found))


def plain_head(path: Path, size: int) -> bytes:
    """The first bytes of the plain file, in UTF-8; none where it cannot be unpacked. Sheets stay packed."""
    with path.open("rb") as stream:
        head = stream.read(size)
    step = _step(path, head)
    try:
        if step in _PACKED.values():
            with _unpacked(path, str(step)) as stream:
                head = stream.read(size)
            step = "UTF-16" if head.startswith(_UTF_16) else None
        if step == "UTF-16":
            head = head[: len(head) // 2 * 2].decode(_utf_16(head), "replace").encode()
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return b""
    return head


def _utf_16(head: bytes) -> str:
    if head.startswith(_UTF_16):
        return "utf-16"
    return "utf-16-le" if head[1:2] == b"\0" else "utf-16-be"


def _step(path: Path, head: bytes) -> str | None:
    """What has to be undone first; None for a plain file."""
    for magic, packing in _PACKED.items():
        if head.startswith(magic):
            return packing
    if head.startswith(_UTF_16) or _is_utf_16(head):
        return "UTF-16"
    return "xlsx" if head.startswith(b"PK\x03\x04") and path.suffix.lower() == SHEET else None


def _is_utf_16(head: bytes) -> bool:
    """UTF-16 without a mark: every second byte of a header in ASCII is zero."""
    some = head[:32]
    return len(some) == 32 and any(not any(some[zeros::2]) and all(some[1 - zeros :: 2]) for zeros in (0, 1))


def _made(source: Path, target: Path, step: str) -> str:
    try:
        if step == "xlsx":
            return _from_sheet(source, target)
        if step == "UTF-16":
            return _from_utf_16(source, target)
        with _unpacked(source, step) as stream, target.open("wb") as out:
            _copied(stream, out)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeError, CalamineError, ValueError) as error:
        raise NotPlainError(f"is {step} and cannot be opened: {type(error).__name__}: {error}") from error
    return f"packed with {step}"


def _unpacked(source: Path, packing: str) -> Any:
    if packing == "gzip":
        return gzip.open(source)
    return lzma.open(source) if packing == "xz" else pa.CompressedInputStream(pa.OSFile(str(source)), "zstd")


def _copied(stream: IO[bytes], out: IO[bytes]) -> None:
    size = 0
    while piece := stream.read(_COPY_BYTES):
        size += len(piece)
        if size > LARGEST_BYTES:
            raise ValueError(f"more than {LARGEST_BYTES} bytes")
        out.write(piece)


def _from_utf_16(source: Path, target: Path) -> str:
    with source.open("rb") as stream:
        encoding = _utf_16(stream.read(2))
    with (
        source.open(encoding=encoding, newline="") as text,
        target.open("w", encoding="utf-8", newline="") as out,
    ):
        shutil.copyfileobj(text, out, _COPY_BYTES)
    return "the text is in UTF-16"


def _from_sheet(source: Path, target: Path) -> str:
    """The first sheet with rows, as CSV: numbers as they are stored, so that what was lost can be seen."""
    book = load_workbook(source)
    sheets = {
        name: book.get_sheet_by_name(name).to_python(skip_empty_area=False) for name in book.sheet_names
    }
    filled = [name for name, rows in sheets.items() if any(any(cell != "" for cell in row) for row in rows)]
    if not filled:
        raise ValueError("no sheet has a row")
    with target.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([_cell(c) for c in row] for row in sheets[filled[0]])
    more = f", {len(filled) - 1} further sheets are not read" if len(filled) > 1 else ""
    return f"sheet {filled[0]} of a spreadsheet{more}"


def _cell(value: Any) -> str:
    """Text of a cell; a float without decimals is the integer that was entered."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    return str(value)
