"""Predictions against golden vectors: every row of a file predicted, compared field by field, and counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import UNSET, BoolArray, ints
from tilewatch.tasks.predict.arithmetic.tiling_keys import KeyLayout
from tilewatch.tasks.predict.calls import GroupedMatmulCall, QuantMatmulCall
from tilewatch.tasks.predict.dynamic_quant import dav_3510 as dynamic_quant_dav_3510
from tilewatch.tasks.predict.environment import DAV_2201, DAV_3510
from tilewatch.tasks.predict.errors import OutOfScope, PredictError
from tilewatch.tasks.predict.golden.case import KEY_FIELD, Case, Skipped, Value
from tilewatch.tasks.predict.golden.file import Row, read_golden
from tilewatch.tasks.predict.golden.produced import derived_grouped, produced, segment
from tilewatch.tasks.predict.golden.unit_tests import dynamic_quant, grouped_matmul, quant_matmul
from tilewatch.tasks.predict.grouped_matmul import dav_2201 as grouped_matmul_dav_2201
from tilewatch.tasks.predict.predict import predict_axis
from tilewatch.tasks.predict.quant_matmul.dav_2201 import tile as quant_matmul_dav_2201
from tilewatch.tasks.predict.quant_matmul.dav_3510 import tile as quant_matmul_dav_3510
from tilewatch.tasks.predict.records import Decisions, Outcome

PATHS = {"mix_basic_api": "tensorapi", "mix_asw": "mix_asw", "tbe": "tbe", "basic": "basic"}


@dataclass(frozen=True)
class Disagreement:
    """One field of one row that came out differently; ``predicted`` None where nothing is predicted."""

    line: int
    field: str
    expected: Value
    predicted: Value | None
    case: Case
    m: int

    def __str__(self) -> str:
        found = "nothing" if self.predicted is None else self.predicted
        what = f"line {self.line}: {self.field}: expected {self.expected}, predicted {found}"
        call = replace(self.case.call, m=self.m)
        return f"{what} · {call} · {self.case.platform} · CANN {self.case.cann.name}"


@dataclass
class FileResult:
    """Counts of one file. Rows are lines; ``compared`` counts values, one a row, field, version and M."""

    path: Path
    rows: int = 0
    covered: set[int] = field(default_factory=set)
    left_out: dict[int, str] = field(default_factory=dict)
    compared: Counter[str] = field(default_factory=Counter)
    unverified: set[str] = field(default_factory=set)
    disagreements: list[Disagreement] = field(default_factory=list)
    unpredicted: list[Disagreement] = field(default_factory=list)

    @property
    def disagreeing_rows(self) -> int:
        """Covered rows with at least one disagreement."""
        return len({d.line for d in self.disagreements})

    @property
    def uncovered(self) -> dict[int, str]:
        """Rows that nothing of is compared, and why, by line."""
        return {line: why for line, why in sorted(self.left_out.items()) if line not in self.covered}

    @property
    def reasons(self) -> Counter[str]:
        """Rows left out, by reason."""
        return Counter(self.uncovered.values())

    @property
    def summary(self) -> str:
        """One line: rows, covered, agreeing, and what was left out why."""
        agreeing = len(self.covered) - self.disagreeing_rows
        text = f"{self.path.name}: {self.rows} rows, {len(self.covered)} covered, {agreeing} agree"
        return text + "".join(f"; {count} out of scope: {why}" for why, count in self.reasons.most_common())

    def first_disagreements(self, count: int) -> list[str]:
        """The first ``count`` disagreements in full, values not predicted last."""
        return [str(d) for d in (self.disagreements + self.unpredicted)[:count]]


def check_files(paths: Iterable[Path]) -> list[FileResult]:
    """Check every file of golden vectors. Raises PredictError for a file or row that cannot be read."""
    return [check_file(path) for path in paths]


def check_file(path: Path) -> FileResult:
    """Predict and compare every row of ``path``."""
    result = FileResult(path)
    groups: dict[tuple[object, ...], list[Case]] = defaultdict(list)
    for line, row in read_golden(path):
        result.rows += 1
        try:
            cases = list(_cases(line, row))
        except (KeyError, TypeError, ValueError, PredictError) as error:
            raise PredictError(f"{path}:{line}", f"not a golden row of a known kind ({error!r})") from error
        for case in cases:
            if isinstance(case, Skipped):
                result.left_out[line] = case.reason
            else:
                groups[(replace(case.call, m=0), case.platform, case.cann, case.refused)].append(case)
    for group in groups.values():
        _check_group(result, group)
    result.disagreements.sort(key=lambda d: d.line)
    return result


def _cases(line: int, row: Row) -> Iterator[Case | Skipped]:
    if "M_from" in row:
        return segment(line, row)
    if "predicted.tiling_key" in row:
        return produced(line, row)
    if row.get("source") == "derived":
        return derived_grouped(line, row)
    if str(row["op"]).startswith("GroupedMatmul"):
        return grouped_matmul(line, row)
    return dynamic_quant(line, row) if row["op"] == "DynamicQuant" else quant_matmul(line, row)


def _check_group(result: FileResult, group: Sequence[Case]) -> None:
    """Predict cases that differ only in M together; alone where one of them is refused."""
    first = group[0]
    values = [m for case in group for m in case.ms]
    try:
        decisions = predict_axis(first.call, "m", ints(values), first.platform, first.cann)
    except OutOfScope as error:
        result.left_out |= {case.line: str(error) for case in group}
        return
    except PredictError as error:
        if len(group) > 1:
            for case in group:
                _check_group(result, [case])
            return
        _refused(result, first, error)
        return
    owners = [case for case in group for _ in case.ms]
    known = np.broadcast_to(decisions.columns["tiling_key"] != UNSET, decisions.outcome.shape)
    for index in np.flatnonzero(~known):
        outcome = decisions.outcomes[decisions.outcome[index]]
        result.left_out[owners[index].line] = _left_out(owners[index], outcome)
    for index in np.flatnonzero(known):
        result.covered.add(owners[index].line)
        if owners[index].refused:
            result.disagreements.append(
                Disagreement(owners[index].line, "refused", True, False, owners[index], values[index])
            )
    _compare(result, decisions, owners, values, known)


def _left_out(case: Case, outcome: Outcome) -> str:
    """Why nothing is compared: the template that the row itself names, and what would decide it."""
    named = case.expected.get("key.KERNEL_TEMPLATE_TYPE")
    if case.expected.get("path") == "basic" or named == quant_matmul_dav_2201.BASIC:
        return f"the Basic path, as its own key says, whose blocks are not restated ({outcome.rule})"
    return f"unknown, and by its own key {case.expected.get('tiling_key')} not the Basic path: {outcome.rule}"


def _refused(result: FileResult, case: Case, error: PredictError) -> None:
    result.covered.add(case.line)
    result.compared["refused"] += 1
    if not case.refused:
        result.disagreements.append(Disagreement(case.line, "refused", False, str(error), case, case.ms[0]))


def _compare(
    result: FileResult, decisions: Decisions, owners: list[Case], values: list[int], known: BoolArray
) -> None:
    where_known = np.flatnonzero(known)
    for name in sorted({name for case in owners for name in case.expected}):
        indices = np.array([i for i in where_known if name in owners[i].expected], dtype=np.int64)
        if not len(indices):
            continue
        result.compared[name] += len(indices)
        verified = owners[0].verified
        if verified is not None and name not in verified:
            result.unverified.add(name)
        found = _predicted(name, decisions, owners[0])[indices]
        expected = np.array([owners[i].expected[name] for i in indices])
        for place in np.flatnonzero(found != expected):
            index, value = indices[place], found[place]
            unset = value == UNSET
            case = owners[index]
            wrong = Disagreement(
                case.line, name, case.expected[name], None if unset else value.item(), case, values[index]
            )
            (result.unpredicted if unset else result.disagreements).append(wrong)


def _predicted(name: str, decisions: Decisions, case: Case) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """Predicted values of ``name`` at every point; UNSET where nothing of that name is predicted."""
    branches = np.array([outcome.branch for outcome in decisions.outcomes])[decisions.outcome]
    if name == "branch":
        return branches
    if name == "path":
        return np.array(
            [next(path for start, path in PATHS.items() if b.startswith(start)) for b in branches]
        )
    if name == "decode_only":
        return np.array(branches == "tbe_decode")
    if name == "base":
        sides = zip(*(decisions.columns[f"base_{side}"].tolist() for side in "mnk"), strict=True)
        return np.array(["x".join(map(str, block)) for block in sides])
    if name == "rowPerOtherCore_derived":
        # Cores of the multi-row branch that are not head cores take one row less; no field says it.
        return decisions.fields["rowPerHeadCore"] - 1
    if name.startswith(KEY_FIELD):
        array = _layout(case).split(decisions.columns["tiling_key"]).get(name.removeprefix(KEY_FIELD))
    else:
        array = decisions.columns.get(name, decisions.fields.get(name))
    return np.full(len(decisions), UNSET) if array is None else np.broadcast_to(array, (len(decisions),))


def _layout(case: Case) -> KeyLayout:
    if isinstance(case.call, GroupedMatmulCall):
        return grouped_matmul_dav_2201.KEY
    if isinstance(case.call, QuantMatmulCall):
        keys = {DAV_2201: quant_matmul_dav_2201.KEY, DAV_3510: quant_matmul_dav_3510.KEY}
        return keys[case.platform.npu_arch]
    return dynamic_quant_dav_3510.key_layout(case.cann)
