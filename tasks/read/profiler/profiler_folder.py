"""Everything a profiler left below a folder, read file by file; a bad file never stops the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.kernel_rows import read_kernels
from tilewatch.tasks.read.profiler.launch_links import with_launches
from tilewatch.tasks.read.profiler.profiler_files import FileKind, kind_of, run_of
from tilewatch.tasks.read.profiler.self_checks import (
    Check,
    check_rows,
    databases_equal_files,
    kernels_once,
    statistic_equals_kernels,
    step_databases_equal_files,
    steps_equal_unions,
)
from tilewatch.tasks.read.profiler.step_marks import with_steps
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.plain_copy import plain_copy

CHECKS = "checks"
"""Key of the result that holds the self-checks of all runs."""

_KERNEL_FILES = ("kernel_details", "op_summary")
_KERNEL_SOURCES = (*_KERNEL_FILES, "profiler_db", "timeline")

_MEASURED = ["name", "start_ns", "duration_ns", "stream_id", "task_id", "device_id"]

Run = dict[str, list[str]]
"""Files of one run by kind, as keys of the results."""


def read_profiler(folder: Path, origin: Origin, *, spool: Path | None = None) -> dict[str, ReadResult]:
    """Results by path below ``folder``, and the self-checks under ``checks``.

    Every table keeps its contract, and the kernels of a run appear once: from kernel_details, else
    op_summary, else the database, else the timeline. A second source is compared or lends its launch times,
    then its table is emptied and ``facts["same_kernels_as"]`` says where they are. ``facts["not_read"]`` says
    why a file has no rows by design; a file that could not be read has a row in its quarantine.

    With ``spool``, a folder, kernel CSVs are read batch by batch and their tables map files there
    (``read_kernels``). Raises NotADirectoryError for a file.
    """
    results: dict[str, ReadResult] = {}
    runs: dict[str, Run] = defaultdict(lambda: defaultdict(list))
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        kind = kind_of(path.name)
        results[name] = _read(path, name, kind, origin, spool)
        if kind is not None:
            runs[run_of(PurePosixPath(folder.name) / name)][kind.name].append(name)
    checks = [check for run in runs.values() for check in _settle(run, results)]
    results[CHECKS] = ReadResult(check_rows(origin, checks), schema("quarantine").empty_table())
    return results


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below the folder by name; links are not followed."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder, expected one that a profiler wrote")
    return iter(sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()))


def _read(path: Path, name: str, kind: FileKind | None, origin: Origin, spool: Path | None) -> ReadResult:
    if kind is None or kind.reader is None:
        reason = "no profiler writes a file of this name" if kind is None else kind.why_not
        return ReadResult(pa.table({}), schema("quarantine").empty_table(), {"not_read": reason})
    try:
        with plain_copy(path, spool) as plain:
            if spool is not None and kind.name in _KERNEL_FILES:
                result = read_kernels(plain.path, origin, name, spool=spool)
            else:
                result = kind.reader(plain.path, origin, name)
    except Exception as error:  # the batch goes on whatever one file does; the file is named in quarantine
        reason = f"{type(error).__name__}: {error}"
        refusal = Refusal(name, None, "reader_failed", reason)
        return ReadResult(pa.table({}), refused_rows(origin, kind.name, [refusal]), {"kind": kind.name})
    found = [*plain.found, *result.facts.get("found", ())]
    odd = {"found": found} if found else {}
    return replace(result, facts={**result.facts, **odd, "kind": kind.name})


def _settle(run: Run, results: dict[str, ReadResult]) -> Iterator[Check]:
    """Checks of one run; its kernels are left in one source only, with launch times."""
    sources = [kind for kind in _KERNEL_SOURCES if any(results[name].table.num_rows for name in run[kind])]
    if sources:
        _leave_out_copies(run[sources[0]], results)
    kernels = _whole("kernels", run[sources[0]], results) if sources else schema("kernels").empty_table()
    files = bool(sources) and sources[0] in _KERNEL_FILES
    if files:
        named = [name for name in run[sources[0]] if results[name].table.num_rows]
        yield kernels_once(" and ".join(named), kernels)
    for name in run["op_statistic"] if sources else ():
        yield statistic_equals_kernels(name, results[name].table, kernels)
    for name in run["step_trace"] if sources else ():
        yield steps_equal_unions(name, results[name].table, kernels)
    for name in run["profiler_db"] if files else ():
        if results[name].table.num_rows:
            yield databases_equal_files(name, results[name].table, kernels)
    steps = _whole("steps", run["step_trace"], results)
    for name in run["analysis_db"] if run["step_trace"] else ():
        yield step_databases_equal_files(name, results[name].table, steps)
    if files and run["timeline"]:
        timeline = _whole("kernels", run["timeline"], results)
        for name in run[sources[0]]:
            table, facts = with_launches(results[name].table, timeline)
            results[name] = replace(results[name], table=table, facts={**results[name].facts, **facts})
    if sources and run["timeline"]:
        also = [results[name].also for name in run["timeline"]]
        marked = [tables["stage_steps"] for tables in also if "stage_steps" in tables]
        for name in run[sources[0]] if len(marked) == 1 else ():
            results[name] = replace(results[name], table=with_steps(results[name].table, marked[0]))
    if run["task_time"] or sources[:1] != ["timeline"]:
        # Tasks that are no kernels stand in task_time; beside the kernels of a CSV nobody asked for them.
        for name in run["timeline"]:
            kept = {key: table for key, table in results[name].also.items() if key != "device_tasks"}
            results[name] = replace(results[name], also=kept)
    for kind in sources[1:]:
        for name in run[kind]:
            facts = {**results[name].facts, "same_kernels_as": run[sources[0]]}
            results[name] = replace(results[name], table=schema("kernels").empty_table(), facts=facts)


def _leave_out_copies(names: list[str], results: dict[str, ReadResult]) -> None:
    """Empty every file whose kernels are those of an earlier one, row by row: one export under two names."""
    for at, name in enumerate(names):
        for earlier in names[:at]:
            one, two = results[earlier], results[name]
            if two.table.num_rows and one.table.select(_MEASURED).equals(two.table.select(_MEASURED)):
                facts = {**two.facts, "same_kernels_as": [earlier]}
                results[name] = replace(two, table=schema("kernels").empty_table(), facts=facts)
                break


def _whole(table: str, names: list[str], results: dict[str, ReadResult]) -> pa.Table:
    parts = [results[name].table for name in names if results[name].table.num_columns]
    return pa.concat_tables([schema(table).empty_table(), *parts])
