"""Golden vector files as flat rows: CSV with a header or JSON lines, gzipped or not, dotted names."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from tilewatch.tasks.predict.errors import PredictError

Row = Mapping[str, Any]


def read_golden(path: Path) -> Iterator[tuple[int, Row]]:
    """Rows of ``path`` with their line number from 1; numbers and booleans as such, empty cells as None.

    Raises PredictError naming file and line for a file that cannot be read or a line that is no row.
    """
    try:
        with _open(path) as lines:
            yield from _csv(lines) if ".csv" in path.suffixes else _json_lines(path, lines)
    except (OSError, UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise PredictError(str(path), f"cannot be read: {error}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8", newline=""))
    return path.open(encoding="utf-8", newline="")


def _csv(lines: IO[str]) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(lines)
    for row in reader:
        yield reader.line_num, {name: _cell(text) for name, text in row.items() if name is not None}


def _json_lines(path: Path, lines: IO[str]) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise PredictError(f"{path}:{number}", f"not JSON: {error.msg}") from error
        if not isinstance(row, dict):
            raise PredictError(f"{path}:{number}", "a line must be a JSON object")
        yield number, dict(_flat("", row))


def _flat(prefix: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(f"{prefix}{name}.", inner)
        else:
            yield f"{prefix}{name}", inner


def _cell(text: str | None) -> Any:
    if text is None or text == "":
        return None
    if text in ("True", "False"):
        return text == "True"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
