"""Agreement with golden vectors: rows for a person, verified fields first, and a document for programs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tilewatch.tasks.predict.golden.check import FileResult

COLUMNS = ("field", "verified", "compared", "agree", "differ", "not predicted")


def report_rows(result: FileResult) -> tuple[tuple[str, ...], list[tuple[str | int, ...]]]:
    """Column names, and for each compared field how often it agreed, differed or was not predicted.

    Fields that the sources call unverified (no golden value of CANN's own) stand apart at the end.
    """
    differ = Counter(d.field for d in result.disagreements)
    missing = Counter(d.field for d in result.unpredicted)
    rows: list[tuple[str | int, ...]] = []
    for name, compared in result.compared.items():
        agree = compared - differ[name] - missing[name]
        verified = "no" if name in result.unverified else "yes"
        rows.append((name, verified, compared, agree, differ[name], missing[name]))
    return COLUMNS, sorted(rows, key=lambda row: (row[1] == "no", -int(row[4]) - int(row[5]), str(row[0])))


def report_document(result: FileResult) -> dict[str, Any]:
    """The result of one file as plain values: counts, fields, every disagreement, every row left out."""
    columns, rows = report_rows(result)
    names = [name.replace(" ", "_") for name in columns]
    return {
        "file": str(result.path),
        "rows": result.rows,
        "covered": len(result.covered),
        "agree": len(result.covered) - result.disagreeing_rows,
        "fields": [dict(zip(names, row, strict=True)) for row in rows],
        "disagreements": [
            {
                "line": one.line,
                "field": one.field,
                "expected": one.expected,
                "predicted": one.predicted,
                "m": one.m,
                "soc": one.case.platform.name,
                "cann": one.case.cann.name,
                "what": str(one),
            }
            for one in result.disagreements
        ],
        "left_out": [{"line": line, "reason": why} for line, why in result.uncovered.items()],
    }
