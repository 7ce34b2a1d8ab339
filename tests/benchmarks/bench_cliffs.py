"""Cliffs on planted curves: how many are found, how many false ones, by noise and axis.

``python tests/benchmarks/bench_cliffs.py [--curves 300]``. A curve is drawn ``curves`` times, ``processes``
values a point that scatter by ``scatter``. *Recall* is the share of planted boundaries found at their exact
place, *false* the share of curves that show a cliff anywhere else: of a curve without one, its error rate.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from tilewatch.tasks.analyse.cliffs.cliffs import find_cliffs
from tilewatch.tasks.analyse.cliffs.curves import Curves

DENSE = np.arange(1, 257)
SPARSE = np.array([
    1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 127, 128, 129, 144, 160, 192, 224, 255, 256,
])  # fmt: skip
NOISES = ((0.01, 5), (0.02, 5), (0.02, 20))
Shape = Callable[[int], float]


def drawn(
    axis: np.ndarray, shape: Shape, scatter: float, processes: int, count: int, seed: int = 1
) -> Curves:
    """``count`` curves of one shape with noise; values are medians over processes, in ns."""
    ideal = np.array([shape(int(m)) for m in axis])
    noise = np.random.default_rng(seed).normal(size=(count, len(axis), processes))
    values = ideal[None, :, None] * np.exp(scatter * noise)
    error = np.sqrt(np.pi / 2 * np.log(values).var(axis=2, ddof=1) / processes)
    index = np.repeat(np.arange(count), len(axis))
    return Curves(pa.table({}), index, np.tile(axis, count), np.median(values, axis=2).ravel(), error.ravel())


def shares(curves: Curves, points: int, planted: set[tuple[int, int]]) -> tuple[float, float]:
    """Share of planted boundaries found, and share of curves with a cliff elsewhere."""
    count = len(curves.axis) // points
    found = find_cliffs(curves)
    hits = sum((c.before, c.after) in planted for c in found)
    false = {c.low // points for c in found if (c.before, c.after) not in planted}
    return hits / max(len(planted) * count, 1), len(false) / count


def planted_curves() -> Iterator[tuple[str, np.ndarray, Shape, set[tuple[int, int]]]]:
    """Name, axis, value in ns by M, and the boundaries that were planted."""
    yield "flat, dense", DENSE, lambda m: 20_000, set()
    yield "growing, dense", DENSE, lambda m: 20_000 + 80 * m, set()
    yield "bent, dense", DENSE, lambda m: max(20_000, 160 * m), set()
    yield "flat, sparse", SPARSE, lambda m: 20_000, set()
    for rise in (1.03, 1.05, 1.10):
        for name, axis in (("dense", DENSE), ("sparse", SPARSE)):
            yield f"step ×{rise:.2f}, {name}", axis, _step(rise), {(128, 129)}
    for period in (16, 64):
        edges = {(m, m + 1) for m in range(period, 256, period)}
        yield f"staircase +10 % a {period}", DENSE, _staircase(period), edges
    yield (
        "comb +10 % but at 16",
        DENSE,
        lambda m: 22_000 if m % 16 else 20_000,
        {(m, m + 1) for m in range(16, 256, 16)},
    )


def _step(rise: float) -> Shape:
    return lambda m: 20_000 * (rise if m > 128 else 1.0)


def _staircase(period: int) -> Shape:
    return lambda m: 20_000 * (1 + 0.1 * ((m - 1) // period))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=int, default=300)
    count = parser.parse_args().curves
    print(f"{'curve':28s} scatter processes  recall  curves with a false cliff ({count} curves)")
    for scatter, processes in NOISES:
        for name, axis, shape, planted in planted_curves():
            recall, false = shares(drawn(axis, shape, scatter, processes, count), len(axis), planted)
            shown = f"{recall:6.2f}" if planted else "     –"
            print(f"{name:28s} {scatter:7.3f} {processes:9d}  {shown}  {false:.3f}")


if __name__ == "__main__":
    main()
