"""The door for notebooks: what ``import tilewatch`` gives."""

from __future__ import annotations

import pandas as pd

from tilewatch.infra.services import store
from tilewatch.infra.settings import load_settings
from tilewatch.infra.tables import TableStore


def load(table: str, build: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Rows of ``table`` from the store of this host's settings, as a DataFrame.

    >>> tilewatch.load("comparisons", build="cann-b")  # doctest: +SKIP
    """
    with store(load_settings()) as endpoint:
        return TableStore(endpoint).load(table, build=build, run_id=run_id)
