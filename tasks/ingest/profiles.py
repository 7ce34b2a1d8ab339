"""Profiles below a path, read for a comparison: no store, nothing is copied or written."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts.errors import USAGE, TilewatchError
from tilewatch.tasks.collect.unpack import is_archive, unpack
from tilewatch.tasks.ingest.recognise import Found, Kind, recognise
from tilewatch.tasks.read.captures.profile_capture import ProfileCapture, ProfileSide
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import profiler_db, profiler_info, timeline
from tilewatch.tasks.read.profiler.kernel_rows import COMPARED, read_kernels
from tilewatch.tasks.read.profiler.profiler_files import kind_of
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.plain_copy import plain_copy, plain_name

_CSV = ("kernel_details", "op_summary")
_SOURCES = (*_CSV, "profiler_db", "timeline")
_RANK = re.compile(r"rank_?(\d+)", re.IGNORECASE)
_READERS_AT_ONCE = 2


class NoProfileError(TilewatchError):
    """A path that holds no kernels of a profile; the message says what was looked for."""

    exit_code = USAGE


def read_profiles(given: Path, *, rank: int | None = None) -> ProfileSide:
    """All profiles at ``given``: a folder of any depth, an archive, or a single CSV, database or timeline.

    The kernels of a run are read once: from kernel_details.csv, else op_summary, else the database, else the
    timeline; a run of several devices is a capture a device. With ``rank`` only that rank. Raises
    NoProfileError where there is no kernel.
    """
    if not given.exists():
        raise NoProfileError(f"{given}: there is nothing at this path", "Name a file, folder or archive")
    with _opened(given) as folder:
        runs = _runs(folder)
        with ThreadPoolExecutor(max_workers=_READERS_AT_ONCE) as pool:
            read = [capture for captures in pool.map(_read_run, runs.items()) for capture in captures]
    captures = [capture for capture in read if rank is None or _rank(capture) == rank]
    if not captures:
        raise NoProfileError(
            f"{given}: no kernel of a profile" + (f" of rank {rank}" if read else ""),
            "A profile has kernel_details.csv, op_summary_*.csv, a profiler database or trace_view.json",
        )
    return _taken_for(captures)


@contextmanager
def _opened(given: Path) -> Iterator[Path]:
    if not (given.is_file() and is_archive(given)):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="tilewatch-") as folder:
        unpack(given, Path(folder) / "unpacked")
        yield Path(folder) / "unpacked"


def _runs(folder: Path) -> dict[str, list[Found]]:
    """Profiler files by run. A single file is believed to be what its ending says, whatever its name."""
    if folder.is_file():
        return {folder.name: [Found(folder, folder.name, Kind.PROFILER)]}
    runs: dict[str, list[Found]] = defaultdict(list)
    for found in recognise(folder):
        if found.kind is Kind.PROFILER:
            runs[found.root or ""].append(found)
    return runs


def _read_run(item: tuple[str, list[Found]]) -> list[ProfileCapture]:
    """Captures of one run, one a device; none where no source of it has kernels."""
    name, files = item
    by_kind: dict[str, list[Found]] = defaultdict(list)
    for file in files:
        by_kind[_kind(file.path)].append(file)
    settings, facts = _settings(by_kind["profiler_info"])
    for source in _SOURCES:
        results = [_read(source, file) for file in sorted(by_kind[source], key=lambda f: f.name)]
        tables = [result.table for result in results if result.table.num_rows]
        if tables:
            refused = sum(result.quarantine.num_rows for result in results)
            names = ", ".join(file.name for file in by_kind[source])
            whole = ProfileCapture(name or ".", pa.concat_tables(tables), names, settings, facts, refused)
            return _by_device(whole)
    return []


def _kind(path: Path) -> str:
    known = kind_of(path.name)
    if known is not None:
        return known.name
    suffix = Path(plain_name(path.name)).suffix
    return {".csv": "kernel_details", ".db": "profiler_db", ".json": "timeline"}.get(suffix, "")


def _read(source: str, file: Found) -> ReadResult:
    origin = Origin("", "", "", "", "ingested", "ingested", "measured")
    with plain_copy(file.path) as plain:
        if source in _CSV:
            return read_kernels(plain.path, origin, file.name, COMPARED)
        reader = profiler_db.read if source == "profiler_db" else timeline.read
        return reader(plain.path, origin, file.name)


def _settings(files: Sequence[Found]) -> tuple[dict[str, Any], dict[str, Any]]:
    origin = Origin("", "", "", "", "ingested", "ingested", "measured")
    settings: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for file in files:
        result = profiler_info.read(file.path, origin, file.name)
        for key, value in zip(
            result.table["key"].to_pylist(), result.table["value"].to_pylist(), strict=True
        ):
            settings[key] = orjson.loads(value)
        facts |= {key: value for key, value in result.facts.items() if key != "rows"}
    return settings, facts


def _by_device(whole: ProfileCapture) -> list[ProfileCapture]:
    devices = pc.unique(whole.kernels["device_id"].drop_null()).to_pylist()
    if len(devices) < 2:
        return [whole]
    return [
        replace(
            whole,
            name=f"{whole.name} device {device}",
            kernels=whole.kernels.filter(pc.equal(whole.kernels["device_id"], device)),
        )
        for device in sorted(devices)
    ]


def _rank(capture: ProfileCapture) -> int | None:
    said = capture.facts.get("rank_id")
    if said is not None and str(said).lstrip("-").isdigit():
        return int(said)
    named = _RANK.search(capture.name)
    return int(named[1]) if named else None


def _taken_for(captures: Sequence[ProfileCapture]) -> ProfileSide:
    """Ranks where every capture names a rank of its own, or comes from a device of its own; else repeats."""
    count = len(captures)
    if count == 1:
        return ProfileSide(tuple(captures))
    ranks = [_rank(capture) for capture in captures]
    if None not in ranks and len(set(ranks)) == count:
        return ProfileSide(tuple(captures), True, f"{count} ranks of one run: each names a rank of its own")
    if " device " in captures[0].name and len({c.name.rsplit(" device ")[0] for c in captures}) == 1:
        return ProfileSide(tuple(captures), True, f"{count} devices of one run: one profile names them all")
    return ProfileSide(
        tuple(captures), False, f"{count} repeats of one program: no two of them name different ranks"
    )
