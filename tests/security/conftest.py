"""What is attacked: the server that `tilewatch up` starts, with its login."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.operate.team import Login
from tilewatch.infra import prefect_settings
from tilewatch.infra.services import prefect_server
from tilewatch.infra.services.prefect_login import own_login
from tilewatch.infra.settings import Settings


@dataclass(frozen=True)
class Own:
    """A home with its running server."""

    home: Path
    api_url: str
    login: str

    @property
    def auth(self) -> Login:
        """Login and CSRF token of a client that may come in."""
        return Login(self.api_url, self.login)

    @property
    def origin(self) -> str:
        """Where its page is."""
        return self.api_url.removesuffix("/api")


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    """The server of a home, as `tilewatch up` starts it."""
    home = tmp_path_factory.mktemp("doors") / "home"
    api_url = prefect_server.ensure_running(Settings(home=home))
    yield Own(home, api_url, own_login(home))
    prefect_settings.server(home).stop(prefect_server.STOP_TIMEOUT_S)
