"""False verdicts and power of the comparison on planted truth: fixed seeds, tables printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from tilewatch.tasks.analyse.comparison.compare import compare_builds
from tilewatch.tasks.analyse.statistics.spread import between_lease_spread

PROCESSES = 10
POINTS = 1_000
DECIDED = ("FASTER", "SLOWER")


def session(kind: str, draw: np.random.Generator) -> tuple[Any, Any]:
    """Process values [points, processes] of both sides of one ABBA sweep with the given noise."""
    order = np.array([0, 1, 1, 0] * (PROCESSES // 2))
    size = (POINTS, 2 * PROCESSES)
    noise = 0.005 * draw.normal(size=size)
    if kind == "2 % drift":
        noise += np.linspace(0, 0.02, 2 * PROCESSES)
    elif kind == "AR(0.5)":
        for i in range(1, 2 * PROCESSES):
            noise[:, i] += 0.5 * noise[:, i - 1]
    elif kind == "two-mode":
        noise += 0.03 * (draw.random(size) < 0.3)
    elif kind == "heavy-tailed t(3)":
        noise = 0.005 * draw.standard_t(3, size=size)
    values = 20_000 * np.exp(noise)
    return values[:, order == 0], values[:, order == 1]


@pytest.mark.parametrize("kind", ["gaussian", "2 % drift", "AR(0.5)", "two-mode", "heavy-tailed t(3)"])
def test_false_verdicts_stay_rare_and_effects_are_found(make_run: Any, kind: str) -> None:
    """At most 0.1 % of an A/A table is called different; prints the power for 2, 3, 5 and 10 %."""
    draw = np.random.default_rng(17)
    base, same = session(kind, draw)
    table = compare_builds(
        make_run(base), make_run(same, run_id="r2", build="b2"), baseline="a", candidate_name="b"
    )
    false = np.isin(table["verdict"].to_pylist(), DECIDED).mean()
    base, changed = session(kind, draw)
    effects = np.ones(POINTS)
    planted = {0.02: slice(0, 50), 0.03: slice(50, 100), 0.05: slice(100, 150), 0.10: slice(150, 200)}
    for effect, rows in planted.items():
        effects[rows] += effect
    table = compare_builds(
        make_run(base),
        make_run(changed * effects[:, None], run_id="r2", build="b2"),
        baseline="a",
        candidate_name="b",
    )
    verdicts = np.array([r["verdict"] for r in sorted(table.to_pylist(), key=lambda r: r["axis_value"])])
    power = {effect: float(np.mean(verdicts[rows] == "SLOWER")) for effect, rows in planted.items()}
    beside = np.isin(verdicts[200:], DECIDED).mean()
    shown = "  ".join(f"{effect:.0%} {share:4.0%}" for effect, share in power.items())
    print(f"{kind:18s} false rows A/A {false:.2%}, beside effects {beside:.2%}; power {shown}")
    assert false <= 0.001
    assert beside <= 0.01
    assert power[0.10] >= 0.98
    assert power[0.05] >= (0.9 if kind != "two-mode" else 0.3)
    assert not np.isin(verdicts[150:200], ["SAME", "FASTER"]).any()


@pytest.mark.parametrize("leases", [2, 8])
def test_identical_runs_in_separate_leases_are_not_called_different(make_run: Any, leases: int) -> None:
    """Prints raw and confirmed rates over three pairs; leases drift by 1.5 % in common and 1 % by point."""
    points, pairs = 70, 3
    raw = confirmed = 0
    for pair in range(pairs):
        draw = np.random.default_rng(100 * leases + pair)

        def lease(name: str, draw: Any = draw) -> Any:
            shift = draw.normal(0, 0.015) + draw.normal(0, 0.01, (points, 1))
            values = 20_000 * np.exp(shift + 0.004 * draw.normal(size=(points, 5)))
            return make_run(values, run_id=name, lease=name)

        history = between_lease_spread([lease(f"archived{i}") for i in range(leases)])
        table = compare_builds(
            lease("base"), lease("new"), baseline="base", candidate_name="new", history=history,
            second_lease=lease("again"),
        )  # fmt: skip
        raw += int(np.isin(table["verdict"].to_pylist(), DECIDED).sum())
        confirmed += sum(value is True for value in table["confirmed"].to_pylist())
    total = pairs * points
    print(
        f"{leases} archived leases: raw {raw / total:.2%}, confirmed {confirmed / total:.2%} of {total} rows"
    )
    assert confirmed / total <= 0.01


def test_a_shift_of_a_whole_lease_is_not_a_regression(make_run: Any) -> None:
    draw = np.random.default_rng(3)

    def lease(name: str, shift: float) -> Any:
        values = 20_000 * np.exp(shift + 0.003 * draw.normal(size=(40, 8)))
        return make_run(values, run_id=name, lease=name)

    history = between_lease_spread([lease(f"h{i}", draw.normal(0, 0.02)) for i in range(6)])
    table = compare_builds(
        lease("a", 0.0), lease("b", 0.04), baseline="a", candidate_name="b", history=history
    )
    assert set(table["verdict"].to_pylist()) == {"UNDECIDED"}
    assert max(table["p_value"].to_pylist()) > 0.01


def _public(detectors: Path, name: str, where: str) -> dict[str, Any]:
    path = detectors / "gemm_tables" / f"h100_sxm_gemm_{name}_gemm_perf.parquet"
    return duckdb.sql(
        f"SELECT m, n, k, median(latency) * 1e6 AS ns FROM '{path}' WHERE {where} GROUP BY ALL ORDER BY ALL"
    ).fetchnumpy()


def _single_values(make_run: Any, table: dict[str, Any], **run: Any) -> Any:
    """One process a point; the place in the sorted table stands for the axis, so that points pair up."""
    return make_run(table["ns"][:, None], axis_values=[f"{m}/{n}/{k}" for m, n, k in zip(
        table["m"], table["n"], table["k"], strict=True
    )], point={"axis_value": table["m"], "m": table["m"], "m_executed": table["m"]}, **run)  # fmt: skip


def test_near_a_a_pair_of_single_values_is_undecided_at_every_point(make_run: Any, detectors: Path) -> None:
    one, two = (_public(detectors, f"trtllm_1.3.0rc{n}", "gemm_dtype = 'bfloat16'") for n in (10, 20))
    table = compare_builds(
        _single_values(make_run, one),
        _single_values(make_run, two, run_id="r2", build="rc20", lease="l2"),
        baseline="rc10",
        candidate_name="rc20",
    )
    compared = table.filter(table["ratio"].is_valid())
    assert compared.num_rows == 35_700
    assert set(compared["verdict"].to_pylist()) == {"UNDECIDED"}
    assert set(compared["extra_processes"].to_pylist()) == {4}


def test_result_sets_of_another_method_are_refused_by_name(make_run: Any, detectors: Path) -> None:
    one, two = (_public(detectors, f"vllm_{v}", "gemm_dtype = 'fp8_block'") for v in ("0.19.0", "0.24.0"))
    sides = (
        _single_values(make_run, one, capture={"method_hash": "activation quantisation outside"}),
        _single_values(
            make_run,
            two,
            run_id="r2",
            build="0.24.0",
            capture={"method_hash": "activation quantisation inside"},
        ),
    )
    table = compare_builds(*sides, baseline="0.19.0", candidate_name="0.24.0")
    refused = table.filter(table["refused"].is_valid())
    assert refused.num_rows > 10_000
    assert set(refused["refused"].to_pylist()) == {
        "method_hash: activation quantisation outside -> activation quantisation inside"
    }
    assert refused["ratio"].null_count == refused.num_rows
    assert set(refused["verdict"].to_pylist()) == {"UNDECIDED"}
