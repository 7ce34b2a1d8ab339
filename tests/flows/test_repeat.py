"""The command that a report prints for a point measures that point again: same point, build and method."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.flows.conftest import Home

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("repeated") / "home", {"PREFECT_API_URL": prefect_server})
    made.run("up", "--store-only")
    yield made
    made.run("down")


@pytest.mark.parametrize(
    ("words", "arms"),
    [
        (("A", "--agent", "simulated", "--build", "sim-cann9.0.0"), 2),
        (("B", "--agent", "simulated", "--build", "sim-cann9.0.0", "--refine", "9.0.0"), 3),
        (("A", "--agent", "cpu", "--build", "mine", "--axis", "3,5"), 2),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_the_printed_command_of_a_point_of_every_arm_repeats_it(
    repeated: Home, words: tuple[str, ...], arms: int
) -> None:
    repeated.run("run", *words, "--preset", "smoke", "--seed", "3")
    (run,) = repeated.rows("SELECT max(run_id) AS run FROM runs")
    points = repeated.rows(
        f"SELECT arm, min_by(command, point_id) AS command FROM points WHERE run_id = '{run['run']}' "
        "GROUP BY arm ORDER BY arm"
    )
    assert len(points) == arms
    for point in points:
        repeated.run(*shlex.split(point["command"])[1:])
        (again,) = repeated.rows("SELECT max(run_id) AS run FROM runs")
        assert again["run"] > run["run"]
        assert identity(repeated, again["run"], point["arm"], None) <= identity(
            repeated, run["run"], point["arm"], point["command"]
        )


def identity(home: Home, run: str, arm: str, command: str | None) -> set[tuple[str, ...]]:
    """Point, build and method of what a run measured of an arm; of the point with that command alone."""
    chosen = f"AND p.command = '{command}'" if command else ""
    rows = home.rows(
        "SELECT DISTINCT p.point_id, p.arm, p.build, p.build_id, c.method_hash, r.agent FROM points p "
        "JOIN captures c ON (c.run_id, c.arm) = (p.run_id, p.arm) JOIN runs r ON r.run_id = p.run_id "
        f"WHERE p.run_id = '{run}' AND p.arm = '{arm}' {chosen}"
    )
    assert len(rows) == 1
    return {tuple(row.values()) for row in rows}
