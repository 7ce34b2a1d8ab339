"""How a grouped matmul's rows fall on its experts: the group list (counts per expert)."""

from __future__ import annotations

import math

SHAPES = ("uniform", "skewed")


def group_list(shape: str, m_e: int, experts: int) -> list[int]:
    """Rows per expert, ``experts`` counts that sum to ``m_e * experts``.

    ``uniform`` gives every expert ``m_e`` rows. ``skewed`` leaves the last quarter of the experts empty and
    deals the rest in proportion to 1/(rank + 1) with largest remainders, the long-tailed load that routing
    without balancing produces; the total, and so ``m_e`` as mean, stays the same.
    """
    if shape == "uniform":
        return [m_e] * experts
    if shape != "skewed":
        raise ValueError(f"group shape {shape!r} is not one of {', '.join(SHAPES)}")
    total, busy = m_e * experts, max(1, experts - experts // 4)
    weight = [1 / (rank + 1) for rank in range(busy)]
    exact = [total * w / sum(weight) for w in weight]
    counts = [math.floor(x) for x in exact]
    by_remainder = sorted(range(busy), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts + [0] * (experts - busy)
