"""Readers against named references, on files tiled from real rows; every number from a process of its own.

``python tests/benchmarks/bench_readers.py [--rows 200000 2000000] [--timeline-mb 250 1000] [--rounds 3]``

Needs TILEWATCH_SHARED. The vendor's own parser takes part where ``--msprof-analyze`` or
TILEWATCH_MSPROF_ANALYZE names an interpreter that has it; its dependencies are kept out of ours::

    python3 -m venv build/msprof-analyze
    build/msprof-analyze/bin/pip install msprof-analyze==26.2.0

pandas 3 reads a large file with several threads, as we do; "pandas, 1 thread" is what it was before. "bare
typed parse" is Arrow's parser alone on our blocks: no reader that checks and derives columns can be faster.

Ratios are medians over rounds in which subject and reference take turns: of the clock, and of the processor
time of all threads, which a busy machine changes less. Memory is the growth of the resident peak.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLES = Path("samples/profiler")
KERNELS = SAMPLES / "msinsight-st-level2-cann83rc1/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
TIMELINE = SAMPLES / "msinsight-pytorch-text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json"

MEASURE = """
import json, sys, time
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
path = sys.argv[1]
{setup}
before, started, worked = peak(), time.perf_counter(), time.process_time()
rows = {call}
took, worked = time.perf_counter() - started, time.process_time() - worked
grown = peak() - before
print(json.dumps({{"rows": rows, "clock_s": took, "cpu_s": worked, "grown_mb": grown, "peak_mb": peak()}}))
"""
OURS = """
from pathlib import Path
from tilewatch.data_contracts import schema
from tilewatch.tasks.read.kernels import kernel_categories
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import kernel_rows, timeline
schema("kernels"), schema("quarantine"), kernel_categories.category_rules()
origin = Origin("c" * 32, "01JZZZZZZZZZZZZZZZZZZZZZZZ", "cann", "b" * 16, "quant_matmul", "nz", "measured")
path = Path(path)
"""
BARE = """
from pathlib import Path
from tilewatch.tasks.read.tabular.csv_parse import parse
from tilewatch.tasks.read.tabular.csv_rows import ahead
from tilewatch.tasks.read.profiler.kernel_rows import KERNELS
from tilewatch.tasks.read.tabular.layout import match_header
from tilewatch.tasks.read.tabular.lines import blocks
source = blocks(Path(path))
header = match_header(next(source).data, KERNELS)
types = header.fast_types
"""
MSPROF_ANALYZE = """
from msprof_analyze.prof_common.file_manager import FileManager
from msprof_analyze.compare_tools.compare_backend.compare_bean.origin_data_bean.kernel_details_bean import (
    KernelDetailsBean,
)
"""
SUBJECTS = {
    "kernel_batches": (OURS, "sum(r.table.num_rows for r in kernel_rows.kernel_batches(path, origin))"),
    "read_kernels": (OURS, "kernel_rows.read_kernels(path, origin).table.num_rows"),
    "spooled": (OURS, "kernel_rows.read_kernels(path, origin, spool=path.parent).table.num_rows"),
    "timeline_batches": (OURS, "sum(r.table.num_rows for r in timeline.timeline_batches(path, origin))"),
    "pandas.read_csv": ("import pandas", "len(pandas.read_csv(path))"),
    "pandas, 1 thread": (
        "import pandas; pandas.set_option('mode.max_threads', 1)",
        "len(pandas.read_csv(path))",
    ),
    "bare typed parse": (BARE, "sum(ahead(source, lambda b: parse(header, b.data, types).num_rows))"),
    "json.load": ("import json", "len(json.load(open(path)))"),
    "msprof-analyze": (MSPROF_ANALYZE, "len(FileManager.read_csv_file(path, KernelDetailsBean))"),
}


def measure(subject: str, path: Path, python: str = sys.executable) -> dict[str, float]:
    """Rows, seconds and memory of one subject in a process of its own."""
    setup, call = SUBJECTS[subject]
    command = [python, "-c", MEASURE.format(setup=setup, call=call), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    if done.returncode:
        raise RuntimeError(f"{subject}: {done.stderr.strip().splitlines()[-1:]}")
    numbers: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return numbers


def compare(path: Path, subjects: list[str], reference: str, rounds: int, python: str | None = None) -> None:
    """Print every subject against the reference, measured in turns; ``python`` runs msprof-analyze."""
    size = path.stat().st_size / 1e6
    print(f"\n{path.name}: {size:.0f} MB, {rounds} rounds, reference {reference}")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in [reference, *subjects]}
    for _ in range(rounds):
        for name, results in runs.items():
            outside = python if python and name == "msprof-analyze" else sys.executable
            results.append(measure(name, path, outside))
    for name, results in runs.items():
        grown, peak = (max(run[key] for run in results) for key in ("grown_mb", "peak_mb"))
        clock, cpu = (_against(results, runs[reference], key) for key in ("clock_s", "cpu_s"))
        print(
            f"  {name:16} {results[0]['rows']:9.0f} rows  clock {clock}  processor {cpu}"
            f"  memory +{grown:5.0f} MB = {grown / size:4.2f} × file (peak {peak:.0f} MB)",
            flush=True,
        )


def _against(results: list[dict[str, float]], base: list[dict[str, float]], key: str) -> str:
    median = statistics.median(run[key] for run in results)
    ratio = statistics.median(run[key] / other[key] for run, other in zip(results, base, strict=True))
    return f"{median:6.2f} s = {ratio:5.2f} ×"


def kernel_file(source: Path, target: Path, rows: int) -> Path:
    """The real file's rows again and again under its header."""
    header, *body = source.read_bytes().splitlines(keepends=True)
    with target.open("wb") as stream:
        stream.write(header)
        for _ in range(rows // len(body)):
            stream.writelines(body)
        stream.writelines(body[: rows % len(body)])
    return target


def timeline_file(source: Path, target: Path, size_mb: int) -> Path:
    """The real events again and again, each time 0.2 s later and with flow ids of their own."""
    events = json.loads(source.read_bytes())
    with target.open("w") as stream:
        stream.write("[" + json.dumps(events[0]))
        for turn in range(max(1, round(size_mb * 1e6 / source.stat().st_size))):
            for event in events[1:]:
                if event["ph"] == "M" and turn:
                    continue
                shifted = dict(event)
                if "ts" in event:
                    whole, _, decimals = event["ts"].partition(".")
                    shifted["ts"] = f"{int(whole) + turn * 200_000}.{decimals}"
                if event.get("cat") == "HostToDevice":
                    shifted["id"] = str(int(event["id"]) * 1000 + turn)
                stream.write(", " + json.dumps(shifted))
        stream.write("]")
    return target


def main() -> None:
    """Make the files, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[200_000])
    parser.add_argument("--timeline-mb", type=int, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--msprof-analyze", default=os.environ.get("TILEWATCH_MSPROF_ANALYZE"))
    options = parser.parse_args()
    shared = Path(os.environ["TILEWATCH_SHARED"])
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            path = kernel_file(shared / KERNELS, Path(folder) / "kernel_details.csv", rows)
            ours = ["bare typed parse", "kernel_batches", "spooled", "read_kernels"]
            compare(path, ["pandas, 1 thread", *ours], "pandas.read_csv", options.rounds)
            if options.msprof_analyze:
                outside = options.msprof_analyze
                compare(path, ["msprof-analyze"], "kernel_batches", options.rounds, outside)
        for size_mb in options.timeline_mb:
            path = timeline_file(shared / TIMELINE, Path(folder) / "trace_view.json", size_mb)
            # json.load needs fifteen times the file.
            reference = "json.load" if size_mb <= 300 else "timeline_batches"
            others = ["timeline_batches"] if reference == "json.load" else []
            compare(path, others, reference, options.rounds)


if __name__ == "__main__":
    main()
