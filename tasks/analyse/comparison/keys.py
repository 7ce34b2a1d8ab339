"""What may differ between two things compared, and what refuses the pair (every difference named)."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from tilewatch.tasks.analyse.tables import AnalysisError, RunTables
from tilewatch.tasks.sql import sql

POINT_KEYS = (
    "operator", "linear", "m", "m_executed", "k", "n", "launch_mode", "weight_format_requested",
    "weight_format", "allocation_regime", "allocated_rows", "local_experts", "group_list_type", "group_shape",
    "group_list", "m_e", "tuning_config", "dtype_x", "dtype_w", "dtype_out", "strides_x", "strides_w",
    "transposed_w",
)  # fmt: skip
"""Columns of ``points`` that make two numbers incomparable; the dispatched operator is reported instead."""

CAPTURE_KEYS = ("device", "device_class", "method_hash", "agent", "evidence")
"""Columns of ``captures`` that do."""

ENVIRONMENT_KEYS = {
    "board": "device.board",
    "effective_cores": "device.cores",
    "effective_vector_cores": "device.vector_cores",
    "deterministic_level": "device.deterministic_level",
    "tuning_bank": "device.tuning_bank",
}
"""Keys that do, by their entry in ``captures.environment``; an entry that only one side has differs."""

OVERRIDABLE = POINT_KEYS + CAPTURE_KEYS + tuple(ENVIRONMENT_KEYS)
"""Every key whose difference refuses a pair unless it is overridden."""


def check_names(names: Collection[str], what: str) -> None:
    """Raise AnalysisError for a key that is not one of OVERRIDABLE."""
    if unknown := sorted(set(names) - set(OVERRIDABLE)):
        raise AnalysisError(
            f"{what}: unknown key {', '.join(unknown)}; known: {', '.join(sorted(OVERRIDABLE))}"
        )


def capture_keys(tables: RunTables) -> pa.Table:
    """One row per (experiment, arm) of main timing captures: its keys as text, several joined by ``|``."""
    plain = [f"string_agg(DISTINCT {k}, '|' ORDER BY {k}) AS {k}" for k in CAPTURE_KEYS]
    packed = [
        f"string_agg(DISTINCT environment['{entry}'], '|' ORDER BY environment['{entry}']) AS {k}"
        for k, entry in ENVIRONMENT_KEYS.items()
    ]
    return sql(
        f"SELECT experiment, arm, {', '.join(plain + packed)} FROM captures "
        "WHERE kind IN ('timing', 'ingested') AND role <> 'control' GROUP BY ALL ORDER BY ALL",
        {"captures": tables.captures},
    )


def point_keys(tables: RunTables) -> pa.Table:
    """One row per (experiment, arm, point): its keys as text, and how the point ended.

    Where several runs of one side disagree their values are joined by ``|`` and differ from the other side.
    """
    keys = ", ".join(f"{_agreed(k)} AS {k}" for k in (*POINT_KEYS, "dispatched_operator"))
    return sql(
        f"SELECT experiment, arm, point_id, {keys}, max(status_reason) AS status_reason "
        "FROM points GROUP BY ALL",
        {"points": tables.points},
    )


def _agreed(name: str) -> str:
    """SQL text expression: the one value of a group, or its two extremes joined where there are several."""
    low, high = f"min({name})", f"max({name})"
    return f"CASE WHEN {low} = {high} THEN {low}::VARCHAR ELSE {low}::VARCHAR || '|' || {high}::VARCHAR END"


def named_differences(keys: Collection[str]) -> list[str]:
    """SQL text expressions, one a key: like ``device: a -> b`` where it differs, NULL where it does not.

    They read joined rows ``bp``/``cp`` of ``point_keys`` and ``bc``/``cc`` of ``capture_keys``.
    """
    sides = {k: ("bp", "cp") if k in POINT_KEYS else ("bc", "cc") for k in keys}
    return [
        f"CASE WHEN {b}.{k} IS DISTINCT FROM {c}.{k} THEN '{k}: ' || coalesce({b}.{k}, 'unknown') "
        f"|| ' -> ' || coalesce({c}.{k}, 'unknown') END"
        for k, (b, c) in sides.items()
    ]


FORMAT_UNPROVED = (
    "CASE WHEN {p}.weight_format_requested IS DISTINCT FROM {p}.weight_format "
    "THEN 'weight_format: requested ' || coalesce({p}.weight_format_requested, 'none') "
    "|| ', proved ' || coalesce({p}.weight_format, 'none') END"
)
"""SQL text expression for a point whose proved format is not the requested one; ``{p}`` is the row."""
