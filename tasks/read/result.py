"""What every reader returns: the good rows, the refused rows, and facts about the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class ReadResult:
    """``table`` keeps its contract; ``quarantine`` has the contract quarantine.

    ``facts`` are JSON-like values about the whole file (header variant, format version, rows seen); they are
    never rows. ``also`` are further tables that the same file holds, by contract name.
    """

    table: pa.Table
    quarantine: pa.Table
    facts: dict[str, Any] = field(default_factory=dict)
    also: dict[str, pa.Table] = field(default_factory=dict)
