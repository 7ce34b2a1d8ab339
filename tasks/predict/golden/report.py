"""Agreement with golden vectors as rows for a person: one a field, verified fields first."""

from __future__ import annotations

from collections import Counter

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
