"""Operating points of a decode step, and the axis presets of A to D that hold the reference one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewatch.tasks.analyse.savings.operating_points import Deployment, operating_points
from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.plan.experiment import load_experiments

# 160 requests on 16 ranks, 7 tokens in a static verify step, top-6 of 256 experts, graphs as captured there.
REFERENCE = Deployment(160, 16, 7, 256, 6, (1, 2, 4, 6, 8, 10))
EXPERIMENTS = load_experiments(Path(__file__).parents[3] / "flows" / "experiments")


def test_the_reference_deployment_gives_its_known_point() -> None:
    found = operating_points(REFERENCE)
    assert found.requests_per_rank == 10
    assert found.dense_m == (7, 14, 28, 42, 56, 70)
    assert found.mean_m_e == 26.25
    assert float(found.m_e @ found.m_e_share) == pytest.approx(26.25)
    assert found.m_e_share.sum() == pytest.approx(1.0)
    # The 128-row block of grouped matmul is never reached by decode.
    assert found.m_e_share[found.m_e >= 128].sum() < 1e-12


@pytest.mark.parametrize("letter", ["A", "B", "C"])
def test_the_decode_preset_of_the_dense_experiments_is_that_point(letter: str) -> None:
    assert tuple(EXPERIMENTS[letter].axis.named["decode"]) == operating_points(REFERENCE).dense_m


def test_the_decode_preset_of_grouped_matmul_is_its_mean() -> None:
    assert EXPERIMENTS["D"].axis.named["decode"] == [int(operating_points(REFERENCE).mean_m_e)]


def test_the_histogram_is_that_of_routing_token_by_token() -> None:
    """1,000 steps routed one token at a time, each to six different experts."""
    draw = np.random.default_rng(2)
    small = Deployment(40, 4, 2, 32, 6)
    picks = draw.random((1000, 80, 32)).argpartition(6, axis=2)[:, :, :6]
    counts = np.stack([np.bincount(step.ravel(), minlength=32) for step in picks]).ravel()
    found = operating_points(small)
    observed = np.bincount(counts, minlength=len(found.m_e))[: len(found.m_e)] / len(counts)
    assert np.abs(observed - found.m_e_share).max() < 0.01


def test_counted_experts_skew_the_histogram_and_keep_its_mean() -> None:
    shares = [8.0] * 2 + [1.0] * 30
    found = operating_points(Deployment(64, 4, 1, 32, 2), shares)
    even = operating_points(Deployment(64, 4, 1, 32, 2))
    assert float(found.m_e @ found.m_e_share) == pytest.approx(found.mean_m_e) == even.mean_m_e
    assert found.expert_axis[-1] > even.expert_axis[-1]


def test_without_graphs_every_batch_is_its_own_m() -> None:
    assert operating_points(Deployment(6, 2, 1, 8, 2)).dense_m == (1, 2, 3)


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        ((0, 1, 1, 8, 2), "concurrency: 0 is not at least 1"),
        ((8, 1, 1, 2, 6), "6 experts a token of 2"),
        ((8, 1, 1, 8, 2, (0,)), "a batch holds at least 1 request"),
        ((8, 1, 1, 8, 2, (1, 4)), "8 requests a rank, but the largest graph holds 4"),
    ],
)
def test_a_deployment_that_cannot_be_is_refused(deployment: tuple[int, ...], said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        operating_points(Deployment(*deployment))  # type: ignore[arg-type]
