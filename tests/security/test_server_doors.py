"""Who reaches the Prefect server that we start: nobody without login, and no page but its own."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import websockets

from tests.security.conftest import Own
from tilewatch.infra import exposure, prefect_settings
from tilewatch.infra.errors import ServiceError, SettingsError
from tilewatch.infra.services import prefect_app
from tilewatch.infra.services.prefect_login import (
    CLIENT_AUTH,
    SERVER_AUTH,
    ensure_login,
    login_file,
    own_login,
)
from tilewatch.infra.settings import Settings

pytestmark = pytest.mark.timeout(300)
EVIL = "http://evil.example"
ASK = "/flows/filter"


def test_a_change_or_a_look_without_login_is_answered_with_401(own: Own) -> None:
    client = httpx.Client(base_url=own.api_url)
    assert client.post(ASK, json={}).status_code == 401
    assert client.get("/flows/name/x").status_code == 401
    assert client.get("/csrf-token", params={"client": "x"}).status_code == 401
    wrong = client.get("/flows/name/x", auth=("tilewatch", "guessed"))
    assert (wrong.status_code, client.get("/health").status_code) == (401, 200)
    assert own.login not in wrong.text


def test_who_has_the_login_comes_in(own: Own) -> None:
    assert httpx.post(own.api_url + ASK, json={}, auth=own.auth).status_code == 200


def test_with_the_login_of_a_browser_but_without_its_csrf_token_nothing_is_changed(own: Own) -> None:
    user, _, password = own.login.partition(":")
    answer = httpx.post(own.api_url + ASK, json={}, auth=(user, password))
    assert (answer.status_code, answer.json()["detail"]) == (403, "Missing CSRF token.")


@pytest.mark.parametrize("origin", [EVIL, "null", "http://127.0.0.1:1", "https://127.0.0.1", ""])
def test_a_page_of_another_origin_is_refused_even_with_the_login(own: Own, origin: str) -> None:
    answer = httpx.post(own.api_url + ASK, json={}, auth=own.auth, headers={"Origin": origin})
    assert (answer.status_code, answer.text) == (403, "this page may not use the server")
    assert "access-control-allow-origin" not in answer.headers


def test_a_browser_that_asks_first_is_told_no_for_a_foreign_page_and_yes_for_the_own_one(own: Own) -> None:
    wanted = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,prefect-csrf-client,prefect-csrf-token",
    }
    foreign = httpx.options(own.api_url + ASK, headers={**wanted, "Origin": EVIL})
    assert foreign.status_code == 403
    near = own.origin.replace("127.0.0.1", "localhost")
    answer = httpx.options(own.api_url + ASK, headers={**wanted, "Origin": near})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, near)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[::1]:80", ""])
def test_a_name_that_was_bound_to_loopback_reaches_nothing(own: Own, host: str) -> None:
    for path in ("/health", "/flows/name/x"):
        answer = httpx.get(own.api_url + path, auth=own.auth, headers={"Host": host})
        assert answer.status_code == 400


def _greeted(own: Own, origin: str | None, token: str) -> str:
    """What the event stream answers: automations would act on what is written to it."""

    async def greet() -> str:
        address = f"{own.api_url.replace('http', 'ws', 1)}/events/in"
        async with websockets.connect(address, subprotocols=["prefect"], origin=origin) as stream:
            await stream.send(json.dumps({"type": "auth", "token": token}))
            return str(await stream.recv())

    return asyncio.run(greet())


def test_the_event_stream_is_open_to_the_login_from_no_page_or_the_own_one_only(own: Own) -> None:
    for origin in (None, own.origin):
        assert json.loads(_greeted(own, origin, own.login)) == {"type": "auth_success"}
    with pytest.raises(websockets.InvalidStatus, match="403"):
        _greeted(own, EVIL, own.login)
    with pytest.raises(websockets.ConnectionClosedError, match="Invalid token"):
        _greeted(own, None, "tilewatch:guessed")


def test_the_login_is_in_a_file_for_the_user_alone_and_on_no_command_line_and_in_no_log(own: Own) -> None:
    service = prefect_settings.server(own.home)
    assert stat.S_IMODE(login_file(own.home).stat().st_mode) == 0o600
    assert stat.S_IMODE(login_file(own.home).parent.stat().st_mode) == 0o700
    secret = own.login.partition(":")[2].encode()
    started = Path(f"/proc/{service.state().pid}/cmdline").read_bytes()
    assert b"prefect_app" in started and secret not in started
    assert secret not in service.log.read_bytes()
    assert stat.S_IMODE((own.home / "prefect" / "prefect.db").stat().st_mode) == 0o600


def test_status_prints_the_login_when_it_is_asked_for_and_never_else(own: Own) -> None:
    environment = {**os.environ, "TILEWATCH_HOME": str(own.home)}

    def status(*words: str) -> str:
        command = [str(Path(sys.executable).with_name("tilewatch")), "status", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    told = status("--login")
    assert f"password there: {own.login}\n" in told and f"page: {own.origin}\n" in told
    assert own.login.partition(":")[2] not in status("--json")


def test_a_command_of_this_home_is_given_the_login_by_its_environment(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PREFECT_API_URL", CLIENT_AUTH):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name in (*prefect_settings.ALWAYS, *prefect_settings.COMMAND_LINE, "PREFECT_HOME"):
        monkeypatch.setenv(name, os.environ.get(name, "unset"))
    prefect_settings.apply(own.home)
    assert (os.environ["PREFECT_API_URL"], os.environ[CLIENT_AUTH]) == (own.api_url, own.login)


def test_the_login_is_made_once_and_refused_when_others_could_read_it(tmp_path: Path) -> None:
    first = ensure_login(tmp_path)
    assert (ensure_login(tmp_path), len(first.partition(":")[2])) == (first, 32)
    assert first != ensure_login(tmp_path / "other")
    login_file(tmp_path).chmod(0o640)
    with pytest.raises(ServiceError, match="can be read by other users"):
        own_login(tmp_path)
    assert [path.name for path in login_file(tmp_path).parent.iterdir()] == ["login"]


@pytest.mark.parametrize("login", ["", "tilewatch", "tilewatch:", ":secret"])
def test_a_server_without_login_is_not_started(login: str) -> None:
    with pytest.raises(SettingsError, match="must hold user:password"):
        prefect_app.doors({SERVER_AUTH: login})


def test_behind_a_proxy_the_page_has_the_origin_of_the_proxy() -> None:
    found = prefect_app.doors({SERVER_AUTH: "a:b", prefect_app.PAGE_API: "https://Tilewatch.Example:443/api"})
    origins = found["PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"].split(",")
    assert origins == ["http://127.0.0.1:4200", "http://localhost:4200", "https://tilewatch.example"]


def test_the_doctor_tells_an_open_server_from_a_closed_one(
    own: Own, prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")

    def warnings(api_url: str) -> dict[str, bool]:
        monkeypatch.setenv("PREFECT_API_URL", api_url)
        return {
            look.name: bool(look.fix)
            for look in exposure.looks(settings)
            if look.name in ("login", "origins")
        }

    assert warnings(own.api_url) == {"login": False, "origins": False}
    # Prefect as it comes, without login.
    assert warnings(prefect_server) == {"login": True, "origins": True}
    assert warnings("http://127.0.0.1:1/api") == {}
