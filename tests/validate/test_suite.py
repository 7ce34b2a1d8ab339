"""The validating side: rules that cannot be built are errors, rules that cannot run are failures."""

from __future__ import annotations

import importlib

import pyarrow as pa
import pytest

from tilewatch.data_contracts import expectations, table_names


@pytest.fixture(scope="module")
def suite():
    """Imported when first used: Great Expectations would cost seconds whenever tests are collected."""
    return importlib.import_module("tilewatch.tasks.validate.suite")


def rule(kind: str, **kwargs):
    return {"type": kind, "kwargs": kwargs, "severity": "error", "description": "a rule"}


NUMBERS = pa.table({"a": pa.array([1, 2, None]), "b": pa.array([2, 2, 2]), "l": pa.array([[1], [], None])})


def test_an_unknown_expectation_is_an_error_and_not_dropped(suite):
    known = rule("expect_column_values_to_not_be_null", column="a")
    with pytest.raises(suite.SuiteError, match="table t: unknown expectation expect_column_to_sing"):
        suite.build("t", [known, rule("expect_column_to_sing", column="a")])


def test_an_unknown_argument_is_an_error(suite):
    with pytest.raises(suite.SuiteError, match="min_valu"):
        suite.build("t", [rule("expect_column_values_to_be_between", column="a", max_value=1, min_valu=0)])


def test_a_missing_argument_is_an_error(suite):
    with pytest.raises(suite.SuiteError, match="column_B"):
        suite.build("t", [rule("expect_column_pair_values_to_be_equal", column_A="a")])


def test_a_rule_stated_twice_is_an_error_because_only_one_would_run(suite):
    twice = rule("expect_column_values_to_not_be_null", column="a")
    with pytest.raises(suite.SuiteError, match="2 rules, but Great Expectations kept 1"):
        suite.build("t", [twice, twice])


@pytest.mark.parametrize("table", table_names())
def test_every_contract_gives_a_suite_with_all_its_rules(suite, table):
    assert len(suite.build(table, expectations(table)).expectations) == len(expectations(table))


def test_a_missing_column_is_a_failure_with_the_exception_as_detail(suite):
    (outcome,) = suite.validate("t", NUMBERS, [rule("expect_column_values_to_not_be_null", column="z")])
    assert not outcome.success and not outcome.row_level and outcome.failed_rows == ()
    assert 'The column "z" in BatchData does not exist' in outcome.detail


def test_a_condition_that_cannot_be_evaluated_is_a_failure_with_the_exception_as_detail(suite):
    broken = rule(
        "expect_column_values_to_not_be_null", column="a", row_condition="z > 1", condition_parser="pandas"
    )
    (outcome,) = suite.validate("t", NUMBERS, [broken])
    assert not outcome.success and "z" in outcome.detail


def test_a_null_beside_a_number_does_not_stop_a_rule_over_two_columns(suite):
    (outcome,) = suite.validate(
        "t", NUMBERS, [rule("expect_column_pair_values_to_be_equal", column_A="a", column_B="b")]
    )
    assert outcome.failed_rows == (0,) and outcome.detail is None


def test_times_in_ns_since_1970_are_compared_to_the_last_digit_beside_nulls(suite):
    start = 1_764_000_000_000_000_001
    times = pa.table({"a": pa.array([start, None, start]), "b": pa.array([start - 1, 1, start])})
    strict = rule("expect_column_pair_values_a_to_be_greater_than_b", column_A="a", column_B="b")
    (outcome,) = suite.validate("t", times, [strict])
    assert outcome.failed_rows == (2,)


def test_a_rule_over_the_whole_table_names_no_rows(suite):
    (outcome,) = suite.validate("t", NUMBERS, [rule("expect_table_row_count_to_be_between", min_value=9)])
    assert not outcome.success and not outcome.row_level and outcome.detail == "observed 3"


def test_a_list_column_comes_along_where_a_rule_needs_it(suite):
    (outcome,) = suite.validate("t", NUMBERS, [rule("expect_column_values_to_not_be_null", column="l")])
    assert outcome.failed_rows == (2,)
