"""How series over builds grow: seconds and peak memory against the same detectors one series at a time."""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import pyarrow as pa

from tilewatch.tasks.analyse.series.change_points import change_points
from tilewatch.tasks.analyse.series.series import series_table
from tilewatch.tasks.analyse.series.t_scan import t_changes

LOOPED = 20


def history(builds: int, points: int) -> pa.Table:
    """A point history of ``points`` series over ``builds`` builds; every tenth has a 5 % step half way."""
    draw = np.random.default_rng(1)
    rows = builds * points
    point, build = np.arange(rows) // builds, np.arange(rows) % builds
    values = 20_000 * np.exp(0.01 * draw.normal(size=rows))
    values[(point % 10 == 0) & (build >= builds // 2)] *= 1.05
    place = pa.array(build)

    def labels(prefix: str) -> pa.Array:
        return pa.array([f"{prefix}{i:05d}" for i in range(builds)]).take(place)

    same = {
        "evidence": "measured", "agent": "npu", "experiment": "quant_matmul", "arm": "standalone",
        "environment": "device a", "device": "a", "method_hash": "m1",
    }  # fmt: skip
    columns = {name: pa.repeat(value, rows) for name, value in same.items()}
    columns |= {
        "build": labels("build"),
        "build_id": labels("id"),
        "run_id": labels("run"),
        "point_id": pa.array([f"point{i:05d}" for i in range(points)]).take(pa.array(point)),
        "started_ns": pa.array(build),
        "processes": pa.repeat(5, rows),
        "value_ns": pa.array(values),
    }
    return pa.table(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--builds", type=int, default=1_000)
    parser.add_argument("--points", type=int, nargs="+", default=[100, 1_000])
    chosen = parser.parse_args()
    print(
        f"{'builds':>6} {'points':>6} {'seconds':>8} {'CPU s':>6} {'ms/point':>9} {'alone ms/point':>15}"
        f" {'steps':>6} {'peak MB':>8}"
    )
    for points in chosen.points:
        rows = history(chosen.builds, points)
        start, spent = time.perf_counter(), time.process_time()
        table = series_table(rows)
        seconds, spent = time.perf_counter() - start, time.process_time() - spent
        values = rows["value_ns"].to_numpy().reshape(points, chosen.builds)[:LOOPED]
        start = time.perf_counter()
        for one in values:
            change_points([one])
            t_changes([one])
        alone = (time.perf_counter() - start) / len(values) * 1e3
        steps = table["event"].to_pylist().count("step")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        each = seconds / points * 1e3
        print(
            f"{chosen.builds:6d} {points:6d} {seconds:8.2f} {spent:6.2f} {each:9.2f} {alone:15.2f} {steps:6d}"
            f" {peak:8.0f}"
        )


if __name__ == "__main__":
    main()
