"""The tables: Delta Lake under ``tables/`` of the store, one commit a table a run, partitioned by build."""

from tilewatch.infra.tables.store import TableStore

__all__ = ["TableStore"]
