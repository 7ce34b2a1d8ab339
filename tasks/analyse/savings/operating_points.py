"""Where a decode step of a deployment really runs: M of its dense linears, and M_e of its experts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from tilewatch.data_contracts.errors import USAGE
from tilewatch.tasks.analyse.tables import AnalysisError


class DeploymentError(AnalysisError):
    """A deployment that cannot be: the message names the number that does not fit."""

    exit_code = USAGE


@dataclass(frozen=True)
class Deployment:
    """How a server is deployed and loaded. ``ranks`` are attention data-parallel, so that each runs its own
    requests; experts are spread over all of them."""

    concurrency: int
    ranks: int
    tokens_per_step: int
    """Tokens of one request in a step: 1, or the draft tokens that a static verify step checks."""
    experts: int
    experts_per_token: int
    graph_sizes: tuple[int, ...] = ()
    """Batch sizes that the server captured graphs for; a batch is padded to the next. Empty: none is."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "ranks", "tokens_per_step", "experts", "experts_per_token"):
            if getattr(self, name) < 1:
                raise DeploymentError(f"{name}: {getattr(self, name)} is not at least 1")
        if self.experts_per_token > self.experts:
            raise DeploymentError(f"{self.experts_per_token} experts a token of {self.experts}")
        if any(size < 1 for size in self.graph_sizes):
            raise DeploymentError(f"graph sizes {self.graph_sizes}: a batch holds at least 1 request")


@dataclass(frozen=True)
class OperatingPoints:
    """What the operators of a decode step see. ``m_e`` counts from 0; ``m_e_share`` adds up to 1."""

    requests_per_rank: int
    dense_m: tuple[int, ...]
    """M of a dense linear for every batch from 1 request a rank to the full one, as executed."""
    mean_m_e: float
    m_e: npt.NDArray[np.int64]
    m_e_share: npt.NDArray[np.float64]
    """Share of the experts that get ``m_e`` rows in a full step."""

    @property
    def expert_axis(self) -> tuple[int, ...]:
        """M_e to measure: the mean, and the 5 and 95 % quantiles around it; at least 1."""
        total = np.cumsum(self.m_e_share)
        quantiles = [int(self.m_e[np.searchsorted(total, share)]) for share in (0.05, 0.95)]
        return tuple(sorted({max(1, value) for value in (*quantiles, math.floor(self.mean_m_e + 0.5))}))


def operating_points(deployment: Deployment, expert_shares: Sequence[float] | None = None) -> OperatingPoints:
    """The M of every dense linear and the histogram of rows an expert of one decode step.

    M is tokens_per_step × batch, the batch padded to the next graph size, up to ⌈concurrency / ranks⌉
    requests. All ranks' tokens meet at the experts: concurrency × tokens_per_step × experts_per_token rows.
    Each token picks an expert with probability experts_per_token × its share, so its rows are binomial;
    without ``expert_shares`` (rows by expert that a server counted) all experts are picked alike. Raises
    DeploymentError for a batch beyond the largest graph, and shares that do not fit.
    """
    requests = math.ceil(deployment.concurrency / deployment.ranks)
    sizes = sorted(deployment.graph_sizes)
    if sizes and sizes[-1] < requests:
        raise DeploymentError(f"{requests} requests a rank, but the largest graph holds {sizes[-1]}")
    batches = [next((size for size in sizes if size >= one), one) for one in range(1, requests + 1)]
    tokens = deployment.concurrency * deployment.tokens_per_step
    shares = _shares(deployment, expert_shares)
    rows = np.arange(tokens + 1)
    # A token picks an expert at most once, so no expert is picked by more than every token.
    chance = np.minimum(deployment.experts_per_token * shares, 1.0)
    histogram = sum(
        stats.binom.pmf(rows, tokens, p) * n
        for p, n in zip(*np.unique(chance, return_counts=True), strict=True)
    )
    share = np.asarray(histogram) / deployment.experts
    last = int(np.flatnonzero(share > 1e-12)[-1]) + 1
    return OperatingPoints(
        requests_per_rank=requests,
        dense_m=tuple(sorted({deployment.tokens_per_step * batch for batch in batches})),
        mean_m_e=tokens * deployment.experts_per_token / deployment.experts,
        m_e=rows[:last],
        m_e_share=share[:last],
    )


def _shares(deployment: Deployment, counted: Sequence[float] | None) -> npt.NDArray[np.float64]:
    if counted is None:
        return np.full(deployment.experts, 1 / deployment.experts)
    found = np.asarray(counted, dtype=np.float64)
    if len(found) != deployment.experts or (found < 0).any() or not found.sum() > 0:
        raise DeploymentError(f"expert shares: {len(found)} counts for {deployment.experts} experts")
    return np.asarray(found / found.sum())
