"""The doctor finds what is wrong and says how to mend it."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tilewatch.infra import doctor, probes
from tilewatch.infra.doctor import Finding, diagnose
from tilewatch.infra.objects import Endpoint
from tilewatch.infra.settings import Settings


def _by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


@pytest.fixture
def settings_of(tmp_path: Path) -> Callable[..., Settings]:
    """Settings with a home of their own and an interpreter that is quick to ask."""

    def make(**changes: Any) -> Settings:
        python = tmp_path / "python"
        python.write_text("#!/bin/sh\necho Python 3.9.0 numpy 1.26.0 torch 2.13.0\n")
        python.chmod(0o755)
        ours = {"home": tmp_path / "home", "lock_folder": tmp_path / "locks", "measure_python": python}
        return Settings(**{**ours, **changes})

    return make


def _external(endpoint: Endpoint, secret_key: str | None = None) -> dict[str, Any]:
    return {
        "s3_endpoint": endpoint.url,
        "s3_bucket": endpoint.bucket,
        "s3_access_key": endpoint.access_key,
        "s3_secret_key": SecretStr(secret_key) if secret_key else endpoint.secret_key,
    }


def test_a_healthy_host_and_store_have_nothing_to_mend(
    settings_of: Callable[..., Settings], new_bucket: Callable[[], Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "WARN_FREE_BYTES", 0)
    endpoint = new_bucket()
    findings = diagnose(settings_of(**_external(endpoint)))
    assert [(f.name, f.what) for f in findings if f.level != "ok"] == []
    assert [f.name for f in findings] == [
        *("settings", "environment", "measure_python", "disk", "database", "lock folder", "spool"),
        *("store", "credentials"),
        *("conditional writes", "checksums", "multipart", "clock"),
    ]
    keys = [
        item["Key"] for item in endpoint.client().list_objects_v2(Bucket=endpoint.bucket).get("Contents", [])
    ]
    assert keys == []


def test_the_interpreter_of_this_environment_can_measure(settings_of: Callable[..., Settings]) -> None:
    pytest.importorskip("torch", reason="needs the extra cpu")
    finding = doctor._measure_python(settings_of(measure_python=Path(sys.executable)))
    assert (finding.level, "torch" in finding.what) == ("ok", True)


def test_a_python_without_torch_is_named_with_its_reason(
    settings_of: Callable[..., Settings], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    finding = doctor._measure_python(settings_of(measure_python=bare))
    assert finding.level == "fail"
    assert str(bare) in finding.what
    assert "No module named 'torch'" in finding.what
    assert "measure_python" in finding.fix


def test_a_python_that_is_not_there_is_named(settings_of: Callable[..., Settings]) -> None:
    finding = doctor._measure_python(settings_of(measure_python=Path("/nowhere/python")))
    assert (finding.level, "/nowhere/python" in finding.what) == ("fail", True)


def test_an_unreachable_store_is_a_finding_and_nothing_that_needs_it_is_tried(
    settings_of: Callable[..., Settings],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    settings = settings_of(
        s3_endpoint=url, s3_access_key=SecretStr("key"), s3_secret_key=SecretStr("hush-hush")
    )
    findings = _by_name(diagnose(settings))
    assert findings["store"].level == "fail"
    assert url in findings["store"].what
    assert "credentials" not in findings


def test_wrong_credentials_are_a_finding_that_shows_no_secret(
    settings_of: Callable[..., Settings], seaweed: Endpoint
) -> None:
    findings = _by_name(diagnose(settings_of(**_external(seaweed, "hush-hush"))))
    assert findings["store"].level == "fail"
    assert "credentials" in findings["store"].what
    assert "hush" not in json.dumps([vars(finding) for finding in findings.values()])


def test_a_misspelt_variable_is_a_warning(
    settings_of: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_S3_BUKET", "typo")
    assert doctor._environment().level == "warn"
    assert "TILEWATCH_S3_BUKET" in doctor._environment().what


def test_a_home_that_cannot_be_made_is_a_finding(
    settings_of: Callable[..., Settings], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    finding = _by_name(list(doctor._host(settings_of(home=tmp_path / "file" / "home"))))["settings"]
    assert (finding.level, "home" in finding.what) == ("fail", True)


@pytest.mark.parametrize(("skew_s", "level"), [(5, "ok"), (-120, "warn"), (4000, "fail")])
def test_a_clock_that_is_off_is_judged_by_how_much(
    seaweed: Endpoint, monkeypatch: pytest.MonkeyPatch, skew_s: float, level: str
) -> None:
    monkeypatch.setattr(probes, "clock_skew_s", lambda _: skew_s)
    assert doctor._clock(seaweed)[0] == level


def test_a_store_that_lets_two_creators_win_is_found(
    seaweed: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_created", lambda *_: True)
    assert "exactly once" in probes.create_only_race(seaweed, f"probe/{time.monotonic_ns()}")


class _Gullible:
    """A client of a store that takes whatever it is sent."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = endpoint.client()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_object(self, **request: Any) -> Any:
        request.pop("ChecksumSHA256", None)
        return self._client.put_object(**request)

    def complete_multipart_upload(self, **request: Any) -> Any:
        request.pop("IfNoneMatch")
        return self._client.complete_multipart_upload(**request)


@pytest.mark.parametrize(
    ("probe", "complaint"), [(probes.bad_checksum, "checksum"), (probes.multipart, "replaced")]
)
def test_a_store_that_takes_everything_is_found(
    seaweed: Endpoint, monkeypatch: pytest.MonkeyPatch, probe: Callable[[Endpoint, str], str], complaint: str
) -> None:
    gullible = _Gullible(seaweed)
    monkeypatch.setattr(Endpoint, "client", lambda *_, **__: gullible)
    assert complaint in probe(seaweed, f"probe/{time.monotonic_ns()}")
