"""The archive of a site: its object store and its tables, reachable for as long as they are used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.services import seaweed, store
from tilewatch.infra.settings import Settings
from tilewatch.infra.tables import TableStore


@dataclass(frozen=True)
class Archive:
    """Raw captures and publications as objects, everything derived as tables."""

    endpoint: Endpoint
    objects: ObjectStore
    tables: TableStore


@contextmanager
def open_archive(settings: Settings) -> Iterator[Archive]:
    """The archive of ``settings``; an embedded store is started for the block where none runs."""
    with store(settings) as endpoint:
        yield Archive(endpoint, ObjectStore(endpoint), TableStore(endpoint))


@contextmanager
def open_archive_to_read(settings: Settings) -> Iterator[Archive]:
    """The archive with credentials that cannot write: the reader's of an embedded store.

    An external store is opened with the keys that are set: give a reading process keys that only read.
    """
    with store(settings) as endpoint:
        reading = endpoint if settings.s3_endpoint is not None else seaweed.reader(settings)
        yield Archive(reading, ObjectStore(reading), TableStore(reading))
