"""How comparing two builds grows: seconds and peak memory against SciPy called point by point."""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import numpy as np
from pyarrow import parquet
from scipy import stats

from tilewatch.tasks.analyse.comparison.compare import compare_builds
from tilewatch.tasks.analyse.tables import RunTables

PROCESSES = 10
LOOPED = 2_000
TABLES = ("runs", "captures", "points", "samples", "alignments")


def builder() -> ModuleType:
    """The table builder of the analysis tests."""
    path = Path(__file__).parents[1] / "analyse" / "conftest.py"
    spec = importlib.util.spec_from_file_location("analyse_conftest", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def build(folder: Path, points: int, samples: int) -> None:
    """Write both sides to ``folder``; in a process of its own, so that the peak is the comparison's."""
    make = builder().run_tables
    draw = np.random.default_rng(1)
    for name, build_label in (("base", "cann-9.0"), ("candidate", "cann-9.1")):
        values = 20_000 * np.exp(0.004 * draw.standard_normal((points, PROCESSES)))
        run = make(values, run_id=name, build=build_label, samples=samples)
        for table in TABLES:
            parquet.write_table(getattr(run, table), folder / f"{name}_{table}.parquet")


def compare(folder: Path, points: int) -> None:
    """Read both sides, compare, print one row."""
    base, candidate = (
        RunTables(*(parquet.read_table(folder / f"{name}_{table}.parquet") for table in TABLES))
        for name in ("base", "candidate")
    )
    logs = np.log(np.random.default_rng(2).normal(20_000, 80, (2, LOOPED, PROCESSES)))
    start = time.perf_counter()
    for row in range(LOOPED):
        stats.ttest_ind(logs[0, row], logs[1, row], equal_var=False)
    loop = (time.perf_counter() - start) / LOOPED * 1e6
    start, spent = time.perf_counter(), time.process_time()
    table = compare_builds(base, candidate, baseline="a", candidate_name="b")
    seconds, spent = time.perf_counter() - start, time.process_time() - spent
    assert table.num_rows == points
    each = seconds / points * 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = base.samples.num_rows * 2
    print(
        f"{points:8d} {rows:9d} {seconds:8.2f} {spent:6.2f} {each:9.1f} {loop:14.1f} {loop / each:6.1f}"
        f" {peak:8.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--samples", type=int, default=1)
    chosen = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print(
        f"{'points':>8} {'samples':>9} {'seconds':>8} {'CPU s':>6} {'µs/point':>9} {'loop µs/point':>14}"
        f" {'ratio':>6} {'peak MB':>8}"
    )
    for points in chosen.points:
        with tempfile.TemporaryDirectory() as name:
            for step in ((build, Path(name), points, chosen.samples), (compare, Path(name), points)):
                process = context.Process(target=step[0], args=step[1:])
                process.start()
                process.join()
                if process.exitcode:
                    sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
