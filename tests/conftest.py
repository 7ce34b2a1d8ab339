"""Fixtures that several stages share."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.prefect_settings import ALWAYS
from tilewatch.infra.services import store
from tilewatch.infra.services.ports import free_ports
from tilewatch.infra.settings import Settings

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


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the API of a real Prefect server on a free loopback port."""
    folder = tmp_path_factory.mktemp("prefect")
    (port,) = free_ports(1)
    environment = {
        **os.environ,
        **ALWAYS,
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_API_PORT": str(port),
    }
    log = (folder / "server.log").open("wb")
    server = subprocess.Popen(
        [str(Path(sys.executable).with_name("prefect")), "server", "start"],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}/api"
    try:
        _wait_until_healthy(f"{url}/health", server)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        log.close()


def _wait_until_healthy(address: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        assert server.poll() is None, "the Prefect server ended"
        try:
            if httpx.get(address, timeout=2).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.3)
    raise AssertionError(f"no Prefect server at {address}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where TILEWATCH_NO_SKIPS is set (in CI), a skipped test is a failure: everything it needs is there."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("TILEWATCH_NO_SKIPS") or reporter is None:
        return
    if skipped := reporter.stats.get("skipped", []):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"TILEWATCH_NO_SKIPS is set and {len(skipped)} tests were skipped", red=True)
