"""Speed and memory of reading tiling from a plog, against grep counting the same markers in the same run.

``python tests/benchmarks/bench_plog.py [--mb 1000] [--repeat 3]``; the log is tiled from real lines, with 5 %
tiling lines. Needs TILEWATCH_SHARED, the folder of samples. The ratio is the median over the repeats, in
which both take turns.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.process import MARKERS
from tilewatch.tasks.read.plog.reader import LogFile, PlogReader

TILING_SHARE = 0.05
LINES_OF_A_LAUNCH = 4
ORIGIN = Origin("0" * 32, "run", "build", "id", "ingested", "ingested", "measured")


def main() -> None:
    """Make the log, run both, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_once(options.read)
        return
    samples = Path(os.environ["TILEWATCH_SHARED"]) / "samples" / "plog"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "plog-13886_20261129145556831.log"
        with log.open("wb") as out:
            for block in tiled(samples, options.mb * 1_000_000):
                out.write(block)
        grep(log)  # the first pass fills the page cache
        # In turns, so that a busy machine slows both.
        pairs = [(grep(log), read_in_process(log)) for _ in range(options.repeat)]
    grep_s = statistics.median(seconds for seconds, _ in pairs)
    read_s = statistics.median(run[0] for _, run in pairs)
    ratio = statistics.median(run[0] / seconds for seconds, run in pairs)
    rows, before_kb = pairs[0][1][1:3]
    peak_kb = max(run[3] for _, run in pairs)
    print(f"{options.mb} MB, {TILING_SHARE:.0%} tiling lines; {rows} records, {len(MARKERS)} markers")
    print(f"processor time: grep -cE {grep_s:.2f} s, read {read_s:.2f} s; ratio {ratio:.2f} (goal 4)")
    print("every pair: " + ", ".join(f"{run[0]:.2f} / {seconds:.2f} s" for seconds, run in pairs))
    print(f"memory: peak {peak_kb // 1024} MB, of which {before_kb // 1024} MB imports (goal 100)")


def tiled(samples: Path, size_bytes: int) -> Iterator[bytes]:
    """Blocks of a log: real lines without tiling, and launches of the vendor's logger numbered on."""
    marked = re.compile(b"|".join(re.escape(marker.encode()) for marker in MARKERS))
    plain = [
        line
        for path in sorted(samples.glob("*.log"))
        for line in path.read_bytes().splitlines(keepends=True)
        if line.startswith(b"[") and not marked.search(line)
    ]
    master = samples / "generated" / "master_plog-13886_20261129145556831.log"
    lines = master.read_bytes().splitlines(keepends=True)[: 6 * LINES_OF_A_LAUNCH]
    launches = [b"".join(lines[i : i + LINES_OF_A_LAUNCH]) for i in range(0, len(lines), LINES_OF_A_LAUNCH)]
    between = round(LINES_OF_A_LAUNCH / TILING_SHARE) - LINES_OF_A_LAUNCH
    written = at = number = 0
    while written < size_bytes:
        filler = b"".join(plain[(at + i) % len(plain)] for i in range(between))
        launch = launches[number % len(launches)]
        launch = re.sub(rb"aclnnMatmul_\d+_", b"aclnnMatmul_%d_" % number, launch)
        launch = re.sub(rb"task_id=\d+", b"task_id=%d" % (number % 65536), launch)
        yield filler + launch
        at, number, written = at + between, number + 1, written + len(filler) + len(launch)


def grep(log: Path) -> float:
    """Processor seconds of grep."""
    pattern = "|".join(re.sub(r"([][.*^$()+?{}|\\])", r"\\\1", marker) for marker in MARKERS)
    before = children_s()
    # Into a pipe: with /dev/null as output, grep stops at its first match.
    subprocess.run(["grep", "-cE", pattern, str(log)], env={"LC_ALL": "C"}, capture_output=True, check=True)
    return children_s() - before


def children_s() -> float:
    """Processor seconds of all processes that ended: a busy machine changes them less than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_in_process(log: Path) -> tuple[float, int, int, int]:
    """Processor seconds, records, resident KB before and at the peak: of a process that reads once."""
    out = subprocess.run(
        [sys.executable, __file__, "--read", str(log)], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(out[0]), int(out[1]), int(out[2]), int(out[3])


def read_once(log: Path) -> None:
    """Read in batches and let each go, as a caller does that stores them."""
    reader = PlogReader(ORIGIN)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    rows = sum(batch.num_rows for batch in reader.batches([LogFile(log, log.name)]))
    seconds = time.process_time() - start
    print(seconds, rows, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main()
