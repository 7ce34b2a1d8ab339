"""One home that holds a run fit to be a baseline, shared by all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flows.conftest import Home

ENOUGH = ("run", "A", "--preset", "smoke", "--arm", "standalone", "--processes", "5", "--seed", "7")


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Iterator[Home]:
    """A home with one run of build ``base``, with as many processes as a baseline needs."""
    made = Home(tmp_path_factory.mktemp("operate") / "home", {"PREFECT_API_URL": prefect_server})
    made.run("up", "--store-only")
    made.run(*ENOUGH, "--build", "base")
    yield made
    made.run("down")
