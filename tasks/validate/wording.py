"""A rule in words, and the columns it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rule = Mapping[str, Any]
"""``{type, kwargs, severity, description}`` as ``data_contracts.expectations`` gives it."""

_NAMING = ("column", "column_A", "column_B", "column_list")
_TECHNICAL = ("row_condition", "condition_parser", "ignore_row_if")


def fields_of(rule: Rule) -> list[str]:
    """Columns the rule judges; empty for a rule over the whole table."""
    kwargs = rule["kwargs"]
    single = [str(kwargs[name]) for name in _NAMING[:3] if name in kwargs]
    return single + [str(name) for name in kwargs.get("column_list", ())]


def requirement(rule: Rule) -> str:
    """What the rule asks for, for example ``column values to be between (min_value 1) where m > 2``."""
    kwargs = rule["kwargs"]
    limits = [f"{k} {v}" for k, v in kwargs.items() if k not in (*_NAMING, *_TECHNICAL)]
    text = str(rule["type"]).removeprefix("expect_").replace("_", " ")
    text += f" ({', '.join(limits)})" if limits else ""
    return text + (f" where {kwargs['row_condition']}" if "row_condition" in kwargs else "")


def refuses(rule: Rule) -> bool:
    """True where a row that breaks the rule is taken out of its table; a warning only says so."""
    return bool(rule["severity"] != "warning")
