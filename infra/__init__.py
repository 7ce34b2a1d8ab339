"""Everything with a side effect on the world: settings, stores, services, lock, command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def load(table: str, build: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Rows of ``table`` from the store of this host's settings, as a DataFrame: the door for notebooks."""
    # Imported here, because everything imports this package and few want pandas.
    from infra.services import store
    from infra.settings import load_settings
    from infra.tables import TableStore

    with store(load_settings()) as endpoint:
        return TableStore(endpoint).load(table, build=build, run_id=run_id)
