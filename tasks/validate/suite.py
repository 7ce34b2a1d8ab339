"""The validating side: the rules of a contract as a Great Expectations suite, and what they find.

Importing this module imports Great Expectations (4-6 s); only ``python -m tilewatch.tasks.validate`` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import great_expectations as gx
import pandas as pd
import pyarrow as pa
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.registry import list_registered_expectation_implementations
from great_expectations.expectations.row_conditions import PassThroughCondition

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.validate.exchange import Outcome

NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
"""Integers stay integers beside nulls: as float64 a time in ns since 1970 loses its last digits."""


class SuiteError(TilewatchError):
    """A rule that Great Expectations does not know or does not take; the message names table and rule."""


def validate(table: str, data: pa.Table, rules: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """Outcomes of ``rules`` (as ``data_contracts.expectations`` gives them) over ``data``, in their order.

    Raises SuiteError for a rule that cannot be built. A rule that cannot run (its column is missing, its
    condition is wrong) is an outcome without success whose detail is the exception.
    """
    suite = build(table, rules)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    asset = context.data_sources.add_pandas("tables").add_dataframe_asset(table)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": _frame(data)})
    result = batch.validate(suite, result_format={"result_format": "COMPLETE"})
    outcomes = [_outcome(one, data.num_rows) for one in result.results]
    if sorted(o.rule_index for o in outcomes) != list(range(len(rules))):
        raise SuiteError(f"table {table}: {len(rules)} rules went in, {len(outcomes)} results came out")
    return sorted(outcomes, key=lambda o: o.rule_index)


def build(table: str, rules: Sequence[Mapping[str, Any]]) -> gx.ExpectationSuite:
    """The suite of ``rules``; each expectation carries the position of its rule as ``meta.rule_index``.

    Great Expectations logs an unknown expectation and drops it, so names are checked before and the count
    after. Raises SuiteError.
    """
    known = set(list_registered_expectation_implementations())
    if unknown := [str(rule["type"]) for rule in rules if rule["type"] not in known]:
        raise SuiteError(f"table {table}: unknown expectation {', '.join(unknown)}")
    entries = [_entry(index, rule) for index, rule in enumerate(rules)]
    suite = gx.ExpectationSuite(name=table)
    for rule, entry in zip(rules, entries, strict=True):
        try:
            suite.add_expectation_configuration(ExpectationConfiguration(**entry))
        except Exception as error:  # pydantic's, GX's own and TypeError, all meaning the same
            raise SuiteError(f"table {table}, rule {rule['description']!r}: {error}") from error
    found = [(e.expectation_type, e.meta["rule_index"]) for e in suite.expectations]
    if found != [(entry["type"], index) for index, entry in enumerate(entries)]:
        raise SuiteError(f"table {table}: {len(rules)} rules, but Great Expectations kept {len(found)}")
    return suite


def _entry(index: int, rule: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = dict(rule["kwargs"])
    if "column_A" in kwargs:
        # A nullable integer compared with a null is neither true nor false and stops the whole rule; that a
        # value is missing where it may not be is found by the rule that requires it.
        kwargs.setdefault("ignore_row_if", "either_value_is_missing")
    if kwargs.pop("condition_parser", None) == "pandas":
        kwargs["row_condition"] = PassThroughCondition(pass_through_filter=kwargs["row_condition"])
    return {"type": rule["type"], "kwargs": kwargs, "meta": {"rule_index": index}}


def _frame(data: pa.Table) -> pd.DataFrame:
    """``data`` as pandas; row number = index."""
    return data.to_pandas(types_mapper=NULLABLE.get)


def _outcome(one: Any, table_rows: int) -> Outcome:
    found: dict[str, Any] = one.result
    exception = _exception(one.exception_info)
    row_level = exception is None and "unexpected_index_list" in found
    observed = found.get("observed_value")
    return Outcome(
        rule_index=one.expectation_config.meta["rule_index"],
        success=bool(one.success),
        row_level=row_level,
        row_count=int(found.get("element_count", table_rows)),
        failed_rows=tuple(sorted(int(i) for i in found.get("unexpected_index_list") or ())),
        detail=exception or (None if observed is None else f"observed {observed}"),
    )


def _exception(info: Mapping[str, Any]) -> str | None:
    """Text of the exceptions in either of the two forms GX reports them in (flat, or by metric)."""
    entries = [info] if "raised_exception" in info else list(info.values())
    texts = [str(e["exception_message"]) for e in entries if e["raised_exception"]]
    return "; ".join(dict.fromkeys(texts)) or None
