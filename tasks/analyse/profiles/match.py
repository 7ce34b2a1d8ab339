"""Which kernel groups of two programs are the same work: by key, by shape, by place in the sequence.

A name alone matches nothing: MatMulV2 becomes MatMulV3, three kernels become one fused kernel, and the same
operator occurs at many places. Groups that are equal in everything and called equally often are anchors; what
stands between the same two anchors on both sides is the same place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

MATCHED, REPLACED, NEW, VANISHED = "matched", "replaced", "new", "vanished"

_MOST_ALIGNED = 4_000_000
"""Product of the lengths of two runs up to which they are aligned kernel by kernel."""
_CALLS_ALIKE = 0.01
"""Relative difference of calls a step up to which a group is called equally often."""


@dataclass(frozen=True)
class Group:
    """One kernel group of a side: ``code`` of all its keys, ``relaxed`` of operator, shapes and dtypes."""

    code: int
    relaxed: int
    op: str
    calls: float | None
    """Calls a step; None where the side has no steps."""


@dataclass(frozen=True)
class Unit:
    """The same work on both sides: indices of the kernel groups that do it. One side may be empty."""

    base: tuple[int, ...]
    candidate: tuple[int, ...]
    change: str


def match(
    base: Sequence[Group], candidate: Sequence[Group], order: tuple[Sequence[int], Sequence[int]]
) -> list[Unit]:
    """Every group of both sides in exactly one unit.

    ``order`` holds the group indices in the sequence of one step, base and candidate.
    """
    anchors = _equal(base, candidate)
    left = _without(range(len(base)), (i for i, _ in anchors))
    right = _without(range(len(candidate)), (j for _, j in anchors))
    units = [Unit((i,), (j,), MATCHED) for i, j in anchors]
    alike = _by_shape(base, candidate, left, right)
    units += alike
    left = _without(left, (i for unit in alike for i in unit.base))
    right = _without(right, (j for unit in alike for j in unit.candidate))
    anchor = ({i: n for n, (i, _) in enumerate(anchors)}, {j: n for n, (_, j) in enumerate(anchors)})
    edges = _by_place(base, candidate, (set(left), set(right)), anchor, order)
    return units + _components(base, candidate, left, right, edges)


def _equal(base: Sequence[Group], candidate: Sequence[Group]) -> list[tuple[int, int]]:
    places = {group.code: j for j, group in enumerate(candidate)}
    pairs = [(i, places[group.code]) for i, group in enumerate(base) if group.code in places]
    return [(i, j) for i, j in pairs if _called_alike(base[i], candidate[j])]


def _called_alike(one: Group, other: Group) -> bool:
    if one.calls is None or other.calls is None:
        return True
    return abs(one.calls - other.calls) <= _CALLS_ALIKE * max(one.calls, other.calls)


def _without(indices: Iterable[int], taken: Iterable[int]) -> list[int]:
    gone = set(taken)
    return [index for index in indices if index not in gone]


def _by_shape(
    base: Sequence[Group], candidate: Sequence[Group], left: Sequence[int], right: Sequence[int]
) -> list[Unit]:
    """The same operator on the same shapes and dtypes: other cores, formats, core kind or number of calls."""
    sides: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i in left:
        sides[base[i].relaxed][0].append(i)
    for j in right:
        sides[candidate[j].relaxed][1].append(j)
    return [Unit(tuple(a), tuple(b), MATCHED) for a, b in sides.values() if a and b]


Run = tuple[int, ...]
Anchors = tuple[dict[int, int], dict[int, int]]


def _by_place(
    base: Sequence[Group],
    candidate: Sequence[Group],
    free: tuple[set[int], set[int]],
    anchor: Anchors,
    order: tuple[Sequence[int], Sequence[int]],
) -> set[tuple[int, int]]:
    """Pairs of groups that stand at the same place: between the same anchors, in the same order."""
    left, right = (_runs(order[side], free[side], anchor[side]) for side in (0, 1))
    edges: set[tuple[int, int]] = set()
    seen: set[tuple[Run, Run]] = set()
    for place, runs in left.items():
        for pair in zip(runs, right.get(place, []), strict=False):
            if pair not in seen:
                seen.add(pair)
                edges |= _aligned(base, candidate, *pair)
    return edges


def _runs(order: Sequence[int], free: set[int], anchor: dict[int, int]) -> dict[tuple[int, int], list[Run]]:
    """What stands between neighbouring anchors, by the two; groups matched by shape are looked through."""
    found: dict[tuple[int, int], list[Run]] = defaultdict(list)
    before, run = -1, []
    for group in order:
        if group in free:
            run.append(group)
        elif group in anchor:
            found[before, anchor[group]].append(tuple(run))
            before, run = anchor[group], []
    found[before, -1].append(tuple(run))
    return found


def _aligned(base: Sequence[Group], candidate: Sequence[Group], a: Run, b: Run) -> set[tuple[int, int]]:
    if not a or not b or len(a) * len(b) > _MOST_ALIGNED:
        return set()
    if len(a) == len(b) == 1:
        return {(a[0], b[0])}
    names = [base[i].op for i in a], [candidate[j].op for j in b]
    edges: set[tuple[int, int]] = set()
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if tag == "equal":
            edges |= set(zip(a[i1:i2], b[j1:j2], strict=True))
        elif tag == "replace":
            edges |= {(i, j) for i in a[i1:i2] for j in b[j1:j2]}
    return edges


def _components(
    base: Sequence[Group],
    candidate: Sequence[Group],
    left: Sequence[int],
    right: Sequence[int],
    edges: set[tuple[int, int]],
) -> list[Unit]:
    """Connected groups are one unit; what has no partner is new or vanished."""
    parent: dict[tuple[int, int], tuple[int, int]] = {}

    def root(node: tuple[int, int]) -> tuple[int, int]:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for i, j in sorted(edges):
        parent[root((0, i))] = root((1, j))
    members: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, indices in enumerate((left, right)):
        for index in indices:
            members[root((side, index))][side].append(index)
    units = []
    for a, b in members.values():
        same_ops = {base[i].op for i in a} == {candidate[j].op for j in b}
        change = (MATCHED if same_ops else REPLACED) if a and b else (VANISHED if a else NEW)
        units.append(Unit(tuple(a), tuple(b), change))
    return units
