"""What the host tiling of the simulated build decides for a point: the prediction, and what is planted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from tilewatch.tasks.predict.calls import DynamicQuantCall, OperatorCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.predict import predict
from tilewatch.tasks.predict.questions.experiments import call_of_point
from tilewatch.tasks.predict.records import TilingRecord
from tilewatch.tasks.simulate.cost_model import bf16_record

OPERATORS: dict[str, tuple[str, ...]] = {
    "dynamic_quant": ("dynamic_quant",),
    "quant_linear": ("dynamic_quant", "quant_matmul"),
    "quant_matmul": ("quant_matmul",),
    "tuple_input": ("quant_matmul",),
    "matmul": ("matmul",),
    "grouped_matmul": ("grouped_matmul",),
}
"""Operators that one call of an operation launches, in order; the last is its main one."""

BF16_KEY = "65537"
"""Tiling key of BF16 products: made up, since no rules of theirs are restated."""

_COLUMNS = frozenset(f.name for f in fields(TilingRecord))


def records_of(
    point: Mapping[str, Any], platform: Platform, cann: CannVersion, planted: Mapping[str, int | str]
) -> dict[str, TilingRecord]:
    """Tiling record of every operator that one call of ``point`` launches, by operator.

    ``planted`` replaces columns (and, by CANN's names, fields) of the main operator's record. Raises
    PredictError for a call that breaks a rule or that the predictor does not cover.
    """
    operators = OPERATORS[point["operation"]]
    found = {operator: _record(operator, point, platform, cann) for operator in operators}
    if planted:
        main = found[operators[-1]]
        own = {name: int(value) for name, value in planted.items() if name not in _COLUMNS}
        columns: dict[str, Any] = {name: value for name, value in planted.items() if name in _COLUMNS}
        found[operators[-1]] = replace(main, **columns, fields={**main.fields, **own})
    return found


def _record(operator: str, point: Mapping[str, Any], platform: Platform, cann: CannVersion) -> TilingRecord:
    if operator == "matmul" or (operator == "grouped_matmul" and point["dtype_w"] != "int8"):
        made_up = bf16_record(point)
        op_type = "MatMulV3" if operator == "matmul" else "GroupedMatmul"
        rule = "made up: no rules are restated for BF16 products"
        return TilingRecord(
            op_type, "made_up", rule, tiling_key=BF16_KEY, block_dim=made_up["used_core_num"], **made_up
        )
    if operator == "dynamic_quant":
        return _predicted(DynamicQuantCall(point["m_executed"], point["k"]), platform, cann)
    if operator == "quant_matmul":
        rows, wanted = point["m_executed"], point["weight_format_requested"]
        return _predicted(QuantMatmulCall(rows, point["k"], point["n"], wanted), platform, cann)
    return _predicted(call_of_point(dict(point)), platform, cann)


@lru_cache(maxsize=65_536)
def _predicted(call: OperatorCall, platform: Platform, cann: CannVersion) -> TilingRecord:
    return predict(call, platform, cann)
