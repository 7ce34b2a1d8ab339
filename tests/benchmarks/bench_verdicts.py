"""What a verdict finds and how often it is wrong, beside the rules of other tools, on the same draws.

``python -m tests.benchmarks.bench_verdicts [--repeats 20] [--values FILE.npy]`` prints one table a noise.
FILE holds real process values of one build, [points, processes] in ns, whose rows are resampled; without it
the noises are models: normal, heavy-tailed, two-mode, stalls, and one factor a process at all its points.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

from tilewatch.tasks.analyse.arrays import verdicts_of

Floats = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Floats]
EFFECTS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
PROCESSES = (5, 10, 20)
POINTS = 40


def _stalls(draw: np.random.Generator, points: int, count: int) -> Floats:
    size = (points, count)
    return 0.012 * draw.standard_normal(size) + (draw.random(size) < 0.1) * draw.exponential(0.3, size)


MODELS: dict[str, Noise] = {
    "normal 1.5 %": lambda d, p, n: 0.015 * d.standard_normal((p, n)),
    "t(3), 2 %": lambda d, p, n: 0.02 / np.sqrt(3) * d.standard_t(3, (p, n)),
    "two-mode 3 %": lambda d, p, n: 0.03 * (d.random((p, n)) < 0.3) + 0.005 * d.standard_normal((p, n)),
    "stalls in 10 %": _stalls,
    "0.6 % shared, 1.8 % own": lambda d, p, n: (
        0.006 * d.standard_normal((1, n)) + 0.018 * d.standard_normal((p, n))
    ),
}


def resampled(values: Floats) -> Noise:
    """Noise drawn from real process values: each point's deviations from its median, with replacement."""
    logs = np.log(values)
    away = logs - np.median(logs, axis=1, keepdims=True)

    def noise(draw: np.random.Generator, points: int, count: int) -> Floats:
        rows = draw.integers(0, len(away), points)
        return away[rows[:, None], draw.integers(0, away.shape[1], (points, count))]

    return noise


def ours(base: Floats, new: Floats) -> npt.NDArray[np.bool_]:
    """Rows that tilewatch calls FASTER or SLOWER."""
    return np.isin(verdicts_of(20_000 * np.exp(base), 20_000 * np.exp(new)).verdict, ["FASTER", "SLOWER"])


def welch_bh(base: Floats, new: Floats) -> npt.NDArray[np.bool_]:
    """Welch on logs and Benjamini-Hochberg, without a floor."""
    p = stats.ttest_ind(new, base, axis=1, equal_var=False).pvalue
    return np.asarray(stats.false_discovery_control(p) <= 0.05)


def mann_whitney(base: Floats, new: Floats) -> npt.NDArray[np.bool_]:
    """benchstat: Mann-Whitney at 0.05 a row."""
    return np.asarray(stats.mannwhitneyu(new, base, axis=1).pvalue < 0.05)


def asv(base: Floats, new: Floats) -> npt.NDArray[np.bool_]:
    """asv compare: medians differ by a factor of 1.1 and Mann-Whitney is below 0.002, if it can be."""
    apart = np.abs(np.median(new, axis=1) - np.median(base, axis=1)) > np.log(1.1)
    return apart & np.asarray(stats.mannwhitneyu(new, base, axis=1).pvalue < 0.002)


def perfherder(base: Floats, new: Floats) -> npt.NDArray[np.bool_]:
    """Perfherder: t above 7 and 2 %."""
    t = stats.ttest_ind(new, base, axis=1, equal_var=False).statistic
    return np.asarray((np.abs(t) > 7) & (np.abs(new.mean(axis=1) - base.mean(axis=1)) > np.log(1.02)))


def nvbench_compare(base: Floats, new: Floats) -> npt.NDArray[np.bool_]:
    """nvbench_compare: means differ by more than the smaller relative noise of the two sides."""
    noise = np.minimum(base.std(axis=1, ddof=1), new.std(axis=1, ddof=1))
    return np.asarray(np.abs(new.mean(axis=1) - base.mean(axis=1)) > noise)


def conbench(base: Floats, new: Floats) -> npt.NDArray[np.bool_]:
    """Conbench: one new result 5 standard deviations from the mean of the history."""
    z = (new[:, 0] - base.mean(axis=1)) / base.std(axis=1, ddof=1)
    return np.asarray(np.abs(z) >= 5)


RULES = {
    "tilewatch": ours, "Welch + BH": welch_bh, "Mann-Whitney": mann_whitney, "asv 1.1": asv,
    "Perfherder t > 7": perfherder, "nvbench_compare": nvbench_compare, "Conbench z 5": conbench,
}  # fmt: skip


def table(name: str, noise: Noise, repeats: int) -> list[str]:
    """Share of rows called different by effect, processes and rule; and what tilewatch says of no change."""
    lines = [f"{name}: share called different, by true slowdown of a quarter of {POINTS} points"]
    lines.append(
        "  processes  rule              " + "".join(f"{effect:>8.0%}" for effect in EFFECTS) + "  beside"
    )
    for count in PROCESSES:
        draws = [np.random.default_rng(seed) for seed in range(repeats)]
        pairs = [(noise(d, POINTS, count), noise(d, POINTS, count)) for d in draws]
        for rule, differs in RULES.items():
            shares, beside = [], 0.0
            for effect in EFFECTS:
                planted = np.where(np.arange(POINTS) < POINTS // 4, np.log1p(effect), 0.0)[:, None]
                called = np.array([differs(base, new + planted) for base, new in pairs])
                shares.append(called[:, : POINTS // 4].mean() if effect else called.mean())
                beside = max(beside, float(called[:, POINTS // 4 :].mean()))
            lines.append(
                f"  {count:>9}  {rule:<18}"
                + "".join(f"{share:>8.1%}" for share in shares)
                + f"{beside:>8.1%}"
            )
        said = [verdicts_of(20_000 * np.exp(b), 20_000 * np.exp(n)).verdict for b, n in pairs]
        words = np.concatenate(said)
        lines.append(
            "             no change: "
            + ", ".join(f"{w} {np.mean(words == w):.1%}" for w in ("SAME", "UNDECIDED", "SLOWER", "FASTER"))
        )
    return lines


def main() -> None:
    """Print the tables."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--repeats", type=int, default=20)
    asked.add_argument("--values", type=Path, help="real process values, [points, processes] in ns, as .npy")
    given = asked.parse_args()
    noises = {given.values.name: resampled(np.load(given.values))} if given.values else MODELS
    for name, noise in noises.items():
        print("\n".join(table(name, noise, given.repeats)), flush=True)


if __name__ == "__main__":
    main()
