"""Which reader a profiler file belongs to, by its name, and which files of a run belong together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import (
    analysis_db,
    api_statistic,
    communication,
    kernel_details,
    msprof_op,
    op_statistic,
    op_summary,
    operator_details,
    profiler_db,
    profiler_info,
    step_trace,
    task_time,
    timeline,
    trace_file,
)
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.plain_copy import plain_name

Reader = Callable[[Path, Origin, str | None], ReadResult]


@dataclass(frozen=True)
class FileKind:
    """A kind of profiler file: its short name, the names it has, and how to read it or why not to."""

    name: str
    pattern: re.Pattern[str]
    reader: Reader | None = None
    why_not: str | None = None


def _kind(name: str, pattern: str, reader: Reader | None = None, why_not: str | None = None) -> FileKind:
    return FileKind(name, re.compile(pattern), reader, why_not)


_STAMP = r"(_slice_\d+)?(_\d+)*"
_OP_GROUPS = "|".join(msprof_op.GROUPS)
_MEMORY = "memory use; no table holds it"
_COLLECTED = "raw collection data; export it with the profiler's own tool first"
_INTERMEDIATE = "an intermediate database of the profiler; its exports are read, it is not"

KINDS = (
    _kind("kernel_details", r"kernel_details\.csv", kernel_details.read),
    _kind("op_summary", rf"op_summary{_STAMP}\.csv", op_summary.read),
    _kind("op_statistic", rf"op_statistic{_STAMP}\.csv", op_statistic.read),
    _kind("api_statistic", rf"api_statistic{_STAMP}\.csv", api_statistic.read),
    _kind("task_time", rf"task_time{_STAMP}\.csv", task_time.read),
    _kind("step_trace", r"(cluster_)?step_trace_time\.csv", step_trace.read),
    _kind("operator_details", r"operator_details\.csv", operator_details.read),
    _kind("communication", r"(cluster_)?communication\.json", communication.read),
    _kind("timeline", rf"(trace_view|msprof{_STAMP})\.json", timeline.read),
    _kind("stage_profile", r".+\.trace\.json", trace_file.read),
    _kind("analysis_db", r"analysis\.db", analysis_db.read),
    _kind("profiler_db", r"(ascend_(pytorch|mindspore)_profiler|msprof)(_\d+)*\.db", profiler_db.read),
    _kind(
        "profiler_info",
        r"(profiler_info(_\d+)?|profiler_metadata|sample)\.json|info\.json(\.\d+)?|(start|end)_info(\.\d+)?",
        profiler_info.read,
    ),
    _kind("msprof_op", rf"({_OP_GROUPS})(_\d+)?\.csv", msprof_op.read),
    _kind("memory", r"(memory_record|operator_memory|.*_mem).*\.csv", why_not=_MEMORY),
    _kind("l2_cache", r"l2_cache.*\.csv", why_not="cache rates without a time; no table holds them"),
    _kind(
        "communication_matrix",
        r"(cluster_)?communication_(matrix|group.*)\.json",
        why_not="links between ranks; no table holds them",
    ),
    _kind(
        "part_of_timeline",
        r"(hccl|step_trace|task_time)(_\d+)+\.json",
        why_not="a part of msprof_*.json beside it",
    ),
    _kind("bandwidth", r"(nic|roce|pcie|hccs|soc_pmu).*\.csv", why_not="link load; no table holds it"),
    _kind("host_side", r"(data_preprocess|fusion_op).*\.csv", why_not="AI CPU and fusion; no table holds it"),
    _kind(
        "cluster_db", r"cluster_analysis\.db", why_not="statistics over several ranks; no table holds them"
    ),
    _kind("intermediate_db", r".*\.db", why_not=_INTERMEDIATE),
    _kind("advice", r"prof_rule_.*\.json", why_not="advice of msprof about its own export; no times in it"),
    _kind("completion", r".*\.(done|complete)", why_not="marks that something is complete; it holds no data"),
    _kind("notes", r".*\.(txt|md|log)", why_not="text for people"),
    _kind("raw", r".*\.(bin|slice_\d+|data)", why_not=_COLLECTED),
)

_RUN_FOLDER = re.compile(r".*_ascend_(pt|ms)|(PROF|OPPROF)_.*")
_OUTPUT_FOLDERS = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")


def kind_of(name: str) -> FileKind | None:
    """The kind of a file by its name, packed or not; None for a name that no profiler uses."""
    plain = plain_name(name)
    return next((kind for kind in KINDS if kind.pattern.fullmatch(plain)), None)


def run_of(path: PurePosixPath) -> str:
    """The run a file belongs to: its outermost ``*_ascend_pt``, ``PROF_*`` or ``OPPROF_*`` folder.

    Else the folder above the profiler's output folder, else the folder the file is in.
    """
    folders = path.parts[:-1]
    for index, folder in enumerate(folders):
        if _RUN_FOLDER.fullmatch(folder):
            return "/".join(folders[: index + 1])
    for index, folder in enumerate(folders):
        if folder in _OUTPUT_FOLDERS:
            return "/".join(folders[:index])
    return "/".join(folders)
