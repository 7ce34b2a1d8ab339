"""What a page is given: a reader of the tables, and what the reader of the page asked for in its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import pyarrow as pa

from tilewatch.data_contracts.errors import TilewatchError


class Reader(Protocol):
    """Answers SQL over the contract tables; a table without rows is there and empty."""

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Rows of one reading statement; ``parameters`` fill ``$name``. Raises QueryError or StoreError."""

    def counts(self) -> Mapping[str, int]:
        """How many rows each table has."""


class NotThereError(TilewatchError):
    """The address names something that the archive does not have."""


@dataclass(frozen=True)
class Asked:
    """The address of a page: path without suffix, and what was chosen behind the question mark."""

    path: str
    chosen: Mapping[str, str]

    def get(self, name: str, default: str = "") -> str:
        """One choice, or ``default``."""
        return self.chosen.get(name, default)

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """One choice as an integer within bounds; ``default`` if it is not a number."""
        text = self.get(name)
        return min(max(int(text), low), high) if text.lstrip("-").isdigit() and len(text) < 10 else default

    def address(self, suffix: str = "", **changes: str | None) -> str:
        """This address with other choices; None and empty ones are left out to keep it short."""
        merged = {**self.chosen, **changes}
        words = {name: value for name, value in merged.items() if value}
        return f"{self.path}{suffix}" + (f"?{urlencode(words)}" if words else "")


def filled(pattern: str, row: Mapping[str, Any]) -> str | None:
    """``/runs/{run_id}`` filled from ``row``, each value quoted; None if a value is missing."""
    names = [part.split("}")[0] for part in pattern.split("{")[1:]]
    if any(row.get(name) is None for name in names):
        return None
    return pattern.format(**{name: quote(str(row[name]), safe="") for name in names})
