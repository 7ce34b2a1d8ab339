"""W8A8 against BF16 from two profiles: for each linear whether INT8 pays, with everything INT8 needs.

A linear is known by (M, K, N), a grouped one by its experts too, whatever operator computes it. On the BF16
side it is a MatMul; on the INT8 side a QuantBatchMatmul, its part of the DynamicQuant before it (several
linears may read one quantised activation), and conversions that stand between the two.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from tilewatch.tasks.analyse.profiles.units import CONVERSIONS, Program
from tilewatch.tasks.analyse.profiles.values import Floats
from tilewatch.tasks.analyse.statistics.limits import LedgerLimits

PAYS, PAYS_NOT, UNTOLD = "INT8 pays", "INT8 does not pay", "cannot be told"
_PLAIN = re.compile(r"(Batch)?Mat[Mm]ul(V\d+)?")
_QUANT = re.compile(r"QuantBatchMat[Mm]ul(V\d+)?")
_GROUPED = re.compile(r"GroupedMatmul(V\d+)?")
_DYNAMIC = re.compile(r"DynamicQuant(V\d+)?")
_FEWEST = 2
"""Steps a side under which no interval exists."""


@dataclass(frozen=True, order=True)
class Linear:
    """M rows, K inner, N columns; ``experts`` is 0 for a dense one. M of a grouped one is all its rows."""

    m: int
    k: int
    n: int
    experts: int = 0

    def __str__(self) -> str:
        """``M 16, K 7168, N 1536``, with the experts of a grouped one."""
        grouped = f", {self.experts} experts" if self.experts else ""
        return f"M {self.m}, K {self.k}, N {self.n}{grouped}"


@dataclass(frozen=True)
class Answer:
    """One linear of both programs. Times are means a call, ns; gain and interval are of a step."""

    linear: Linear
    calls: float
    t_bf16_ns: float
    t_int8_ns: float
    t_dynamic_quant_ns: float
    t_other_ns: float
    net_ns: float
    net_low_ns: float | None
    net_high_ns: float | None
    most_gain_ns: float
    share: float
    outcome: str
    sentence: str

    def row(self) -> dict[str, Any]:
        """The answer as plain values, the linear's numbers beside the times."""
        own = {key: value for key, value in vars(self).items() if key != "linear"}
        return {**vars(self.linear), **own}


@dataclass(frozen=True)
class _Series:
    """One linear on one side: time of every step by part, calls and what the matmul owns a step."""

    calls: float
    owned: float
    matmul: Floats
    quant: Floats
    other: Floats


def linear_answers(
    bf16: Program, int8: Program, limits: LedgerLimits | None = None
) -> tuple[list[Answer], list[str]]:
    """Answers, the largest possible gain first, and what could not be matched, as sentences.

    ``net`` is BF16 minus everything INT8 needs, a call; its interval is Welch's over steps. ``most_gain`` is
    what the step can gain at most by INT8 (or, where it does not pay, by staying BF16): net of all calls, but
    no more than what the linear owns of the step. Both sides need steps.
    """
    if not (bf16.has_steps and int8.has_steps):
        return [], ["linears need steps on both sides: mark them, or profile more of them"]
    limits = limits or LedgerLimits()
    base, candidate = _plain(bf16), _quantised(int8)
    wall = float(np.concatenate([profile.wall for profile in bf16.profiles]).mean())
    answers = [
        _answer(key, base[key], candidate[key], wall, limits) for key in base.keys() & candidate.keys()
    ]
    lonely = [f"{key}: only in BF16 on the base side" for key in sorted(base.keys() - candidate.keys())]
    lonely += [f"{key}: only in INT8 on the candidate side" for key in sorted(candidate.keys() - base.keys())]
    return sorted(answers, key=lambda answer: -answer.most_gain_ns), lonely


def _answer(key: Linear, one: _Series, other: _Series, wall: float, limits: LedgerLimits) -> Answer:
    spent = other.matmul + other.quant + other.other
    net, half = _welch(one.matmul, spent, limits.alpha)
    calls = min(one.calls, other.calls)
    t_bf16 = float(one.matmul.mean()) / one.calls
    band = max(limits.relative_floor * t_bf16, limits.absolute_floor_ns)
    per_call = net / calls
    known = half is not None and abs(one.calls - other.calls) < 0.01 * calls
    low, high = (
        (per_call - half / calls, per_call + half / calls) if known and half is not None else (None, None)
    )
    outcome = UNTOLD
    if low is not None and high is not None:
        outcome = PAYS if low > band else PAYS_NOT if high < -band else UNTOLD
    most = min(abs(net), one.owned if net > 0 else other.owned)
    return Answer(
        key, calls, t_bf16, float(other.matmul.mean()) / other.calls, float(other.quant.mean()) / other.calls,
        float(other.other.mean()) / other.calls, per_call, low, high, most, most / wall if wall else 0.0,
        outcome, _sentence(key, one, other, outcome, most / wall if wall else 0.0),
    )  # fmt: skip


def _sentence(key: Linear, one: _Series, other: _Series, outcome: str, share: float) -> str:
    if abs(one.calls - other.calls) >= 0.01 * min(one.calls, other.calls):
        return f"{key}: {one.calls:.4g} calls a step in BF16, {other.calls:.4g} in INT8: not the same work"
    if outcome == PAYS:
        return f"{key}: INT8 pays, at most {share:.2%} of the step"
    if outcome == PAYS_NOT:
        return f"{key}: INT8 does not pay; BF16 would give back at most {share:.2%} of the step"
    return f"{key}: cannot be told; the interval of the net holds both, or too few steps"


def _welch(base: Floats, candidate: Floats, alpha: float) -> tuple[float, float | None]:
    """Mean difference base − candidate and half its interval; None with fewer than two steps a side."""
    net = float(base.mean() - candidate.mean())
    if min(len(base), len(candidate)) < _FEWEST:
        return net, None
    parts = [float(values.var(ddof=1)) / len(values) for values in (base, candidate)]
    total = sum(parts)
    if total == 0:
        return net, 0.0
    spent = sum(p**2 / (len(v) - 1) for p, v in zip(parts, (base, candidate), strict=True))
    return net, float(special.stdtrit(total**2 / spent, 1 - alpha / 2)) * float(np.sqrt(total))


def shape_of(group: dict[str, Any]) -> Linear | None:
    """The linear that a kernel group computes, by its input and output shapes; None where they do not say it.

    K is the last dimension of the activation and N that of the output, so that a weight in FRACTAL_NZ, whose
    own shape is that of its blocks, or a transposed one needs no look.
    """
    inputs, outputs = group["input_shapes"] or [], group["output_shapes"] or []
    if len(inputs) < 2 or not outputs or len(inputs[0]) < 2 or not outputs[0]:
        return None
    m, k, n = int(np.prod(inputs[0][:-1])), inputs[0][-1], outputs[0][-1]
    experts = inputs[1][0] if _GROUPED.fullmatch(group["op"]) and len(inputs[1]) >= 3 else 0
    return Linear(m, k, n, experts) if min(m, k, n) > 0 else None


def _is_int8(group: dict[str, Any]) -> bool:
    return bool(group["input_dtypes"]) and group["input_dtypes"][0].upper() in ("INT8", "DT_INT8")


def _plain(side: Program) -> dict[Linear, _Series]:
    found: dict[Linear, list[int]] = defaultdict(list)
    for index, group in enumerate(side.groups):
        dense = _PLAIN.fullmatch(group["op"]) or _GROUPED.fullmatch(group["op"])
        key = shape_of(group) if dense and not _is_int8(group) else None
        if key is not None and side.calls[index] > 0:
            found[key].append(index)
    return {key: _series(side, groups, {}, {}) for key, groups in found.items()}


def _quantised(side: Program) -> dict[Linear, _Series]:
    found: dict[Linear, list[int]] = defaultdict(list)
    for index, group in enumerate(side.groups):
        quantised = _QUANT.fullmatch(group["op"]) or (_GROUPED.fullmatch(group["op"]) and _is_int8(group))
        key = shape_of(group) if quantised else None
        if key is not None and side.calls[index] > 0:
            found[key].append(index)
    quant, other = _needs(side, {g: key for key, groups in found.items() for g in groups})
    return {key: _series(side, groups, quant[key], other[key]) for key, groups in found.items()}


Weights = dict[Linear, dict[int, float]]


def _needs(side: Program, linear: dict[int, Linear]) -> tuple[Weights, Weights]:
    """Parts of DynamicQuant and conversion groups that each linear needs, by their place in the sequence.

    One quantised activation that several linears read is shared between them evenly.
    """
    sequence = side.sequence()
    counts = np.bincount(sequence, minlength=len(side.groups))
    quant: Weights = defaultdict(lambda: defaultdict(float))
    other: Weights = defaultdict(lambda: defaultdict(float))
    source: int | None = None
    readers: list[Linear] = []
    between: list[int] = []

    def settle() -> None:
        for reader in readers:
            assert source is not None  # only what reads a quantised activation is listed
            quant[reader][source] += 1 / len(readers) / counts[source]

    for group in [*sequence, -1]:
        op = side.groups[group]["op"] if group >= 0 else ""
        if group < 0 or _DYNAMIC.fullmatch(op):
            settle()
            source, readers, between = group, [], []
        elif group in linear:
            if source is not None and _reads(side.groups[source], linear[group]):
                readers.append(linear[group])
                for conversion in between:
                    other[linear[group]][conversion] += 1 / counts[conversion]
            between = []
        elif op in CONVERSIONS:
            between.append(group)
    return quant, other


def _reads(quant: dict[str, Any], linear: Linear) -> bool:
    shapes = quant["input_shapes"] or [[]]
    return bool(shapes[0]) and shapes[0][-1] == linear.k


def _series(
    side: Program, groups: Sequence[int], quant: dict[int, float], other: dict[int, float]
) -> _Series:
    def times(weights: dict[int, float]) -> Floats:
        parts = []
        for number, profile in enumerate(side.profiles):
            common = side.index[number]
            columns = [(mine, weights[one]) for mine, one in common.items() if one in weights]
            total = np.zeros(len(profile.wall))
            for mine, weight in columns:
                total = total + weight * profile.time[:, mine]
            parts.append(total)
        return np.concatenate(parts)

    calls, owned = (float(values[list(groups)].sum()) for values in (side.calls, side.exposed_ns))
    return _Series(calls, owned, times(dict.fromkeys(groups, 1.0)), times(quant), times(other))


def keep_bf16(answers: Sequence[Answer]) -> list[Answer]:
    """Linears that should stay BF16: INT8 does not pay at any M that was seen of this (K, N, experts)."""
    outcomes: dict[tuple[int, int, int], set[str]] = defaultdict(set)
    for answer in answers:
        outcomes[answer.linear.k, answer.linear.n, answer.linear.experts].add(answer.outcome)
    return [
        answer
        for answer in answers
        if outcomes[answer.linear.k, answer.linear.n, answer.linear.experts] == {PAYS_NOT}
    ]
