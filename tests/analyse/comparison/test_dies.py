"""Where several dies share a sweep, their differences are a block factor: no verdict rests on who ran."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewatch.tasks.analyse.comparison.compare import compare_builds
from tilewatch.tasks.analyse.statistics.process_values import point_statistics, process_values

POINTS = 200


def of_dies(make_run: Any, shares: tuple[int, int], seed: int, slow_point: float = 1.0, **rest: Any) -> Any:
    """A run whose second die is 10 % slower; ``shares`` are the processes of each die."""
    dies = np.repeat([0, 1], shares)
    noise = 0.002 * np.random.default_rng(seed).standard_normal((POINTS, len(dies)))
    values = 20_000 * np.exp(noise) * np.where(dies == 1, 1.1, 1.0)
    values[7] *= slow_point
    return make_run(values, capture={"device": [f"910C, die {die}" for die in dies]}, **rest)


def verdicts(base: Any, candidate: Any) -> Any:
    return compare_builds(base, candidate, baseline="cann-9.0", candidate_name="cann-9.1")


@pytest.mark.parametrize("shares", [(4, 4), (6, 2)])
def test_a_slower_die_makes_no_build_slower_whatever_its_share(
    make_run: Any, shares: tuple[int, int]
) -> None:
    base = of_dies(make_run, (4, 4), 1)
    candidate = of_dies(make_run, shares, 2, slow_point=1.05, run_id="run2", build="cann-9.1")
    rows = verdicts(base, candidate)
    assert Counter(rows["verdict"].to_pylist()) == {"SAME": POINTS - 1, "SLOWER": 1}
    ratio = rows["ratio"].to_numpy()
    assert abs(np.median(ratio) - 1) < 0.001, "six processes of the fast die are no faster build"
    assert rows["ratio"].to_pylist()[7] == pytest.approx(1.05, abs=0.005)


def test_a_point_s_mean_and_variance_are_those_of_dies_as_blocks(make_run: Any) -> None:
    run = of_dies(make_run, (3, 2), 3)
    found = point_statistics(process_values(run.samples, run.captures))
    logs = _logs(run)[0]
    first, second = logs[:3], logs[3:]
    point = found.keys["point_id"].to_pylist().index(run.points["point_id"][0].as_py())
    within = (((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum()) / (5 - 2)
    of_mean = within * (1 / 3 + 1 / 2) / 4
    assert found.mean_log[point] == pytest.approx((first.mean() + second.mean()) / 2, rel=1e-12)
    assert found.variance_log[point] / 5 == pytest.approx(of_mean, rel=1e-9)
    assert set(found.dies.tolist()) == {2}


def _logs(run: Any) -> npt.NDArray[np.float64]:
    """Logs of the values [points, processes], in the order in which the run was made."""
    values = run.samples["duration_ns"].to_numpy().reshape(POINTS, 5)
    return np.log(values.astype(np.float64))
