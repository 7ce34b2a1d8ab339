"""The validation page: what was checked, what failed, with examples; one file, no outside resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewatch.tasks.pages import templates

_ENVIRONMENT = templates("tilewatch.tasks.validate", ".")


def render_page(results: Mapping[str, Any], *, title: str, report_href: str | None = None) -> str:
    """HTML of ``Validated.results``. ``report_href`` is the relative address of the report, if there is one.

    Tables with failures come first and open; the others are folded. The same results give the same bytes.
    """
    tables = sorted(results["tables"], key=lambda t: (not _failures(t), t["name"]))
    return _ENVIRONMENT.get_template("page.html.j2").render(
        title=title,
        report_href=report_href,
        tables=[{**table, "failed": _failures(table)} for table in tables],
        rule_count=sum(len(table["rules"]) for table in tables),
        failed_count=sum(len(_failures(table)) for table in tables),
        row_count=sum(table["rows"] for table in tables),
        refused_count=sum(table["refused"] for table in tables),
    )


def _failures(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [rule for rule in table["rules"] if not rule["success"]]
