"""Boundaries along an axis, and the axis values a sweep gets from them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall, OperatorCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.predict import predict_axis
from tilewatch.tasks.predict.questions.boundaries import axis_values, intervals, refine_axis
from tilewatch.tasks.predict.records import Decisions

C910 = platform("Ascend910_9391")
A950 = platform("Ascend950DT_9581")
CANN = cann_version("9.1.0")
WQ_A = QuantMatmulCall(1, 4096, 1024)


def decision(found: Decisions, index: int) -> tuple[object, ...]:
    arrays = [found.outcome, *found.columns.values(), *found.compared.values()]
    return tuple(int(array[index]) for array in arrays)


@pytest.mark.parametrize(
    ("call", "chip"),
    [(WQ_A, C910), (WQ_A, A950), (DynamicQuantCall(1, 1024), C910), (DynamicQuantCall(1, 4096), A950)],
)
def test_intervals_cover_the_axis_and_are_exactly_the_runs_of_equal_records(
    call: OperatorCall, chip: type[C910]
) -> None:
    found = predict_axis(call, "m", np.arange(1, 257), chip, CANN)
    expected, first = [], 1
    for m in range(2, 258):
        if m == 257 or decision(found, m - 1) != decision(found, m - 2):
            expected.append((first, m - 1))
            first = m
    assert [(i.start, i.stop) for i in intervals(call, "m", 1, 256, chip, CANN)] == expected


def test_wq_a_on_the_910_has_its_known_boundaries() -> None:
    found = intervals(WQ_A, "m", 1, 128, C910, CANN)
    assert [i.start for i in found] == [1, 17, 33, 49, 65, 95, 97, 113]
    assert "block_dim" in found[5].differs and "base_m" in found[5].differs
    assert found[0].differs == ()


def test_the_record_of_an_interval_is_the_prediction_at_its_start() -> None:
    for interval in intervals(WQ_A, "m", 1, 256, C910, CANN):
        assert interval.record.m_cnt == -(-interval.start // (interval.record.base_m or 1))


def test_refinement_gives_both_sides_of_every_boundary_and_the_next_aligned_value() -> None:
    values = refine_axis(WQ_A, "m", 1, 128, C910, CANN)
    assert {1, 16, 17, 32, 33, 94, 95, 96, 97, 112, 113, 128} <= set(values)
    assert 128 in refine_axis(WQ_A, "m", 90, 140, C910, CANN)
    assert values == sorted(set(values))


def test_refinement_for_two_versions_is_the_union_of_both() -> None:
    old, new = cann_version("8.5.0"), cann_version("9.1.0")
    call = DynamicQuantCall(1, 4096)
    each = [set(refine_axis(call, "m", 1, 64, C910, version)) for version in (old, new)]
    assert set(refine_axis(call, "m", 1, 64, C910, [old, new])) == each[0] | each[1]
    assert each[0] != each[1]


def test_rows_per_expert_step_at_128_with_padded_rows() -> None:
    call = GroupedMatmulCall(9216, 4096, 4096, 16, m_e=1)
    found = intervals(call, "m_e", 1, 256, C910, CANN)
    assert [(i.start, i.differs) for i in found] == [(1, ()), (129, ("units_per_expert", "rounds"))]
    assert refine_axis(call, "m_e", 1, 256, C910, CANN) == [1, 128, 129, 256]


def test_exact_allocation_moves_the_base_block_with_the_rows_per_expert() -> None:
    call = GroupedMatmulCall(1, 4096, 4096, 16, m_e=1, exact_rows=True)
    found = intervals(call, "m_e", 1, 64, C910, CANN)
    assert [(i.start, i.record.base_m) for i in found if "base_m" in i.differs][:2] == [(2, 32), (3, 48)]


def test_an_nz_weight_axis_steps_in_whole_fractals() -> None:
    assert axis_values(WQ_A, "n", 1, 100).tolist() == [32, 64, 96]
    assert axis_values(WQ_A, "k", 1, 40).tolist() == [16, 32]


def test_any_axis_can_be_swept() -> None:
    random = Random(9)
    for axis in ("k", "n"):
        start = random.randint(64, 512)
        found = intervals(WQ_A, axis, start, start + 2048, A950, CANN)
        assert found[0].start >= start and found[-1].stop <= start + 2048


def test_every_field_cuts_finer() -> None:
    coarse = intervals(WQ_A, "m", 1, 64, C910, CANN)
    fine = intervals(WQ_A, "m", 1, 64, C910, CANN, every_field=True)
    assert len(fine) == 64 > len(coarse)
