"""An ingested capture folder → tables, and an account of every file: rows, refused rows, self-checks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.collect.manifest import CaptureError, Manifest, read_manifest, verify
from tilewatch.tasks.read.captures import serving_bench
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.loss_checks import loss_checks
from tilewatch.tasks.read.plog.reader import LogFile, read_plog
from tilewatch.tasks.read.profiler.profiler_folder import CHECKS, read_profiler
from tilewatch.tasks.read.profiler.self_checks import check_rows
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.plain_copy import NotPlainError, plain_copy

UNKNOWN = "unknown"
_SAID = (
    "rank_id", "chip", "aic_count", "aiv_count", "aic_frequency_mhz", "device_id", "driver",
    "profiler_level", "started_ns", "ended_ns",
)  # fmt: skip
_DOCUMENTS = {"capture.json", "environment.json"}


@dataclass(frozen=True)
class FileAccount:
    """What became of one file: rows by table, refused rows by rule, and a note about the rest."""

    file: str
    rows: dict[str, int]
    quarantined: int
    reasons: dict[str, int]
    note: str | None = None


@dataclass(frozen=True)
class IngestedTables:
    """Tables by contract name, the account, the self-checks, and facts about the logs."""

    tables: dict[str, pa.Table]
    account: tuple[FileAccount, ...]
    checks: pa.Table
    log_facts: dict[str, Any]


@dataclass
class _Parts:
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    account: list[FileAccount] = field(default_factory=list)

    def add(self, table: str, result: ReadResult) -> None:
        if result.table.num_columns:
            self.tables.setdefault(table, []).append(result.table)
        self.tables.setdefault("quarantine", []).append(result.quarantine)


def ingested_origin(folder: Path) -> Origin:
    """Identity of an ingested capture, from its manifest and ``capture.json``; run and process are unknown.

    Raises CaptureError where the folder is no ingested capture.
    """
    manifest, capture = _opened(folder)
    return _origin(manifest, capture)


def read_ingested(
    folder: Path, origin: Origin | None = None, *, raw_prefix: str = "", spool: Path | None = None
) -> IngestedTables:
    """Read all files of an ingested capture. One bad file never stops the rest.

    ``raw_prefix`` is where the object store keeps the capture; ``spool`` is that of ``read_profiler``. Raises
    CaptureError where the folder differs from its manifest.
    """
    manifest, capture = _opened(folder)
    verify(folder, manifest)
    origin = origin or _origin(manifest, capture)
    parts = _Parts()
    checks, said = _read_profiler(folder, origin, parts, spool)
    facts = _read_logs(folder, origin, parts, spool)
    if facts:
        losses = check_rows(origin, loss_checks(facts["loss"], facts["file_times"]))
        checks = pa.concat_tables([checks, losses])
    for path in _below(folder, "serving"):
        name = path.relative_to(folder).as_posix()
        result = _read_serving(path, origin, name, spool)
        parts.add("serving_results", result)
        for further, rows in result.also.items():
            parts.tables.setdefault(further, []).append(rows)
        parts.account.append(_account(name, "serving_results", result))
    for path in _below(folder, "environment"):
        name = path.relative_to(folder).as_posix()
        parts.account.append(FileAccount(name, {}, 0, {}, "identity and device state, in environment.json"))
    parts.tables["captures"] = [_captures(folder, manifest, capture, origin, raw_prefix, said)]
    tables = {name: pa.concat_tables(found) for name, found in parts.tables.items()}
    return IngestedTables(tables, tuple(sorted(parts.account, key=lambda a: a.file)), checks, facts)


def _read_profiler(
    folder: Path, origin: Origin, parts: _Parts, spool: Path | None
) -> tuple[pa.Table, dict[str, Any]]:
    """Self-checks, and what the profile's own info files say of device, clock and time."""
    profiler = folder / "profiler"
    if not profiler.is_dir():
        return schema("checks").empty_table(), {}
    results = read_profiler(profiler, origin, spool=spool)
    checks = results.pop(CHECKS).table
    infos = [result.facts for result in results.values() if result.facts.get("kind") == "profiler_info"]
    said = {key: value for facts in infos for key, value in facts.items() if key in _SAID}
    for name, result in results.items():
        placed = ReadResult(_in_capture(result.table), _in_capture(result.quarantine), result.facts)
        table = _table_name(placed.table)
        if table is not None:
            parts.add(table, placed)
        else:
            parts.tables.setdefault("quarantine", []).append(placed.quarantine)
        for further, rows in result.also.items():
            parts.tables.setdefault(further, []).append(_in_capture(rows))
        parts.account.append(_account(f"profiler/{name}", table, placed))
    return checks, said


def _read_serving(path: Path, origin: Origin, name: str, spool: Path | None) -> ReadResult:
    try:
        with plain_copy(path, spool) as plain:
            result = serving_bench.read(plain.path, origin, name)
    except NotPlainError as error:
        return _unreadable(name, origin, "serving_results", error)
    return replace(result, facts={**result.facts, "found": list(plain.found)})


def _unreadable(name: str, origin: Origin, table: str, error: NotPlainError) -> ReadResult:
    refusal = Refusal(name, None, "reader_failed", f"the file {error}")
    return ReadResult(schema(table).empty_table(), refused_rows(origin, table, [refusal]))


def _read_logs(folder: Path, origin: Origin, parts: _Parts, spool: Path | None) -> dict[str, Any]:
    found = [(p, p.relative_to(folder).as_posix()) for p in _below(folder, "log")]
    files = []
    with ExitStack() as copies:
        for path, name in found:
            try:
                files.append(LogFile(copies.enter_context(plain_copy(path, spool)).path, name))
            except NotPlainError as error:
                refused = _unreadable(name, origin, "tilings", error)
                parts.add("tilings", refused)
                parts.account.append(_account(name, None, refused))
        return _logs(files, folder, origin, parts)


def _logs(files: list[LogFile], folder: Path, origin: Origin, parts: _Parts) -> dict[str, Any]:
    if not files:
        return {}
    result = read_plog(files, origin, cann_version=_cann_version(folder), census=True)
    parts.add("tilings", result)
    refused = Counter(
        zip(result.quarantine["source_file"].to_pylist(), result.quarantine["rule"].to_pylist(), strict=True)
    )
    for entry in result.facts["files"]:
        reasons = {rule: n for (name, rule), n in refused.items() if name == entry["file"]}
        parts.account.append(
            FileAccount(entry["file"], {"tilings": entry["records"]}, sum(reasons.values()), reasons)
        )
    return result.facts


def _account(name: str, table: str | None, result: ReadResult) -> FileAccount:
    reasons = refusals_by_reason(result.quarantine, result.facts)
    rows = {table: result.table.num_rows} if table else {}
    return FileAccount(name, rows, sum(reasons.values()), reasons, _note(result.facts))


def refusals_by_reason(quarantine: pa.Table, facts: Mapping[str, Any]) -> dict[str, int]:
    """Refused rows by rule and field; those refused together, by the column, count one by one."""
    reasons: Counter[str] = Counter()
    for row in quarantine.select(["rule", "field"]).to_pylist():
        reasons[f"{row['rule']} ({row['field']})" if row["field"] else row["rule"]] += 1
    for key, rows in facts.get("refused_together", {}).items():
        reasons[key] += rows
    return dict(reasons)


def _note(facts: Mapping[str, Any]) -> str | None:
    """Why a file has no rows by design, else what is odd about it and how much of its kernels lacks what."""
    if (not_read := facts.get("not_read")) is not None:
        return str(not_read)
    said = list(facts.get("found", ()))
    if same := facts.get("same_kernels_as"):
        return "; ".join([*said, "the same kernels as " + ", ".join(f"profiler/{file}" for file in same)])
    if coarse := facts.get("coarse_times"):
        said.append(f"{coarse} start times went through a double: up to 0.7 µs are lost")
    said += [f"{rows} rows of {kind} are no kernels and left out" for kind, rows in _aside(facts)]
    if (share := facts.get("other_share")) is not None:
        said.append(f"{share:.1%} of the time is category other")
    if "linked" in facts:
        said.append(f"{facts['linked']} launches linked, {facts['negative_latencies']} latencies negative")
    return "; ".join(said) or None


def _aside(facts: Mapping[str, Any]) -> list[tuple[str, int]]:
    return sorted(facts.get("aside", {}).items())


def _in_capture(table: pa.Table) -> pa.Table:
    """``source_file`` from below ``profiler/`` to below the capture."""
    if "source_file" not in table.column_names:
        return table
    index = table.column_names.index("source_file")
    column = pc.binary_join_element_wise("profiler", table.column(index), "/")
    return table.set_column(index, table.schema.field(index), column)


def _table_name(table: pa.Table) -> str | None:
    """The contract a table keeps, by its columns; None for a table without columns."""
    if not table.num_columns:
        return None
    for name in _PROFILER_TABLES:
        if schema(name).names == table.column_names:
            return name
    raise CaptureError(f"a profiler reader returned columns of no contract: {table.column_names}")


_PROFILER_TABLES = (
    "kernels", "operators", "api_calls", "device_tasks", "steps", "communications", "profiler_settings",
    "block_counters", "serving_results",
)  # fmt: skip


def _captures(
    folder: Path,
    manifest: Manifest,
    capture: dict[str, Any],
    origin: Origin,
    raw_prefix: str,
    said: Mapping[str, Any],
) -> pa.Table:
    environment = _document(folder / "environment.json")
    device = environment["device"]
    flat = dict(environment["build"]["components"])
    if conflicts := environment["build"]["conflicts"]:
        flat["conflicts"] = "; ".join(conflicts)
    flat |= {key: str(value) for key, value in said.items() if not key.endswith("_ns")}
    started, ended = said.get("started_ns", 0), said.get("ended_ns", 0)
    if device["device"] == UNKNOWN and "device_id" in said:
        device["device"] = str(said["device_id"])
    if device["device_class"] == UNKNOWN and "chip" in said:
        device["device_class"] = said["chip"]
    row = {
        **{k: v for k, v in origin.columns().items() if k != "process_index"},
        **{name: capture[name] for name in ("role", "kind", "agent", "status")},
        **{name: device[name] for name in ("host", "device", "device_class")},
        **dict.fromkeys(("plan_hash", "method_hash", "lease_id"), UNKNOWN),
        **dict.fromkeys(("process_index", "block", "method_version", "seed"), 0),
        **dict.fromkeys(("sample_count", "discarded_count"), 0),
        "started_ns": started,
        "ended_ns": max(started, ended),
        "file_count": len(manifest.files),
        "size_bytes": manifest.size_bytes,
        "raw_prefix": raw_prefix,
        "environment": sorted(flat.items()),
    }
    return from_rows("captures", [row])


def _cann_version(folder: Path) -> str | None:
    components: dict[str, str] = _document(folder / "environment.json")["build"]["components"]
    return components.get("cann")


def _opened(folder: Path) -> tuple[Manifest, dict[str, Any]]:
    manifest = read_manifest(folder)
    capture = _document(folder / "capture.json")
    if capture.get("status") != "ingested":
        raise CaptureError(
            f"{folder / 'capture.json'}: status {capture.get('status')!r}, expected 'ingested'"
        )
    return manifest, capture


def _origin(manifest: Manifest, capture: dict[str, Any]) -> Origin:
    return Origin(
        capture_id=manifest.capture_id,
        run_id=UNKNOWN,
        build=capture["build"]["label"],
        build_id=capture["build"]["build_id"],
        experiment=capture["experiment"],
        arm=capture["arm"],
        evidence=capture["evidence"],
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CaptureError(f"{path}: missing") from None
    except ValueError as error:
        raise CaptureError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CaptureError(f"{path}: not an object")
    return document


def _below(folder: Path, name: str) -> Iterator[Path]:
    return iter(sorted(p for p in (folder / name).rglob("*") if p.is_file()))
