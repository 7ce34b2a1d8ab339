"""Fixtures that several stages share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.objects import Endpoint, ObjectStore
from infra.services import store
from infra.settings import Settings

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout under test."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real samples and golden vectors; tests that need it skip where it is not there."""
    folder = os.environ.get("TILEWATCH_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real samples: set TILEWATCH_SHARED to the folder that holds samples/ and vectors/")
    return Path(folder)


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A real embedded store, running for the whole session; make keys of your own, others use it too."""
    with store(Settings(home=tmp_path_factory.mktemp("store"))) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def new_bucket(seaweed: Endpoint) -> Callable[[], Endpoint]:
    """Makes an empty bucket in the running store, for tests that list or write whole tables."""
    numbers = itertools.count()

    def make() -> Endpoint:
        endpoint = replace(seaweed, bucket=f"test-{next(numbers)}")
        endpoint.client().create_bucket(Bucket=endpoint.bucket)
        return endpoint

    return make


@pytest.fixture
def object_store(new_bucket: Callable[[], Endpoint]) -> ObjectStore:
    """An empty object store."""
    return ObjectStore(new_bucket())
