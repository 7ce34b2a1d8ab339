"""Numbers as people read them."""

from __future__ import annotations

import pytest

from tilewatch.tasks.publish.display import count, digits, duration, experiment_name, ratio, round_duration


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0 ns"),
        (87.0, "87.0 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 µs"),
        (12_345, "12.3 µs"),
        (999_999, "1.00 ms"),
        (1_234_567, "1.23 ms"),
        (61_500_000_000, "61.5 s"),
        (-4_000, "-4.00 µs"),
    ],
)
def test_a_duration_has_three_digits_and_the_unit_that_fits(value_ns, text):
    assert duration(value_ns) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.01234, "0.0123"), (9.999, "10.0"), (123.4, "123"), (12_345, "12300")]
)
def test_digits_never_use_an_exponent(value, text):
    assert digits(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.2, "×1.20"), (1.0012, "×1.001"), (0.95, "×0.95"), (None, "–")]
)
def test_a_ratio_close_to_one_keeps_three_decimals(value, text):
    assert ratio(value) == text


def test_labels_of_an_axis_carry_their_unit_and_no_needless_digits():
    assert [round_duration(ns) for ns in (800, 20_000, 1.5e6)] == ["800 ns", "20 µs", "1.5 ms"]


def test_an_experiment_letter_is_shown_with_its_name():
    assert experiment_name("B") == "B quant_matmul" and experiment_name("own_sweep") == "own_sweep"


def test_nouns_agree_with_their_number():
    assert (count(1, "point"), count(1200, "point"), count(2, "process")) == (
        "1 point",
        "1,200 points",
        "2 processes",
    )
