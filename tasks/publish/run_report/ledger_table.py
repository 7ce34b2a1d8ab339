"""The INT8-against-BF16 ledger as text, a row a linear and M."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tilewatch.tasks.publish.display import NOTHING, duration
from tilewatch.tasks.publish.run_report.break_even import OUTCOMES, ledger_line


def ledger_rows(ledger: pa.Table) -> list[dict[str, Any]]:
    """Rows of contract ``ledger`` ready to print, by line and M."""
    rows = sorted(ledger.to_pylist(), key=lambda row: (ledger_line(row), row["m"]))
    return [
        {
            "line": ledger_line(row),
            "m": row["m"],
            "bf16": duration(row["t_bf16_ns"]),
            "int8": duration(row["t_int8_ns"]),
            "dynamic_quant": duration(row["t_dynamic_quant_ns"]),
            "other": _other(row["t_other_ns"], row["t_other_parts"], row["t_other_reason"]),
            "net": duration(row["net_ns"]),
            "band": NOTHING
            if row["net_low_ns"] is None
            else f"{duration(row['net_low_ns'])} to {duration(row['net_high_ns'])}",
            "outcome": OUTCOMES[row["outcome"]][0],
        }
        for row in rows
    ]


def break_even_lines(ledger: pa.Table) -> list[tuple[str, str]]:
    """What the ledger says of break-even, once a line, sorted; else why it says nothing."""
    said = set()
    for row in ledger.to_pylist():
        if row["break_even"]:
            said.add((ledger_line(row), row["break_even"]))
        elif row["t_other_reason"]:
            said.add((ledger_line(row), f"no break-even: {row['t_other_reason']}"))
    return sorted(said)


def _other(total_ns: float | None, parts: list[tuple[str, float]] | None, reason: str | None) -> str:
    if total_ns is None:
        return f"unknown: {reason}" if reason else "unknown"
    named = ", ".join(f"{name} {duration(value)}" for name, value in parts or [])
    text = f"{duration(total_ns)} ({named})" if named else duration(total_ns)
    return f"{text}: {reason}" if reason else text
