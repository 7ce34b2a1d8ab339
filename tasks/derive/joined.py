"""The rows of many captures as one table; a table without rows keeps its contract."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tilewatch.data_contracts import schema


def joined(name: str, tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of ``tables``, which keep the contract ``name``, in order."""
    return pa.concat_tables([schema(name).empty_table(), *tables])
