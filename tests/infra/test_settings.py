"""Settings say where a value comes from, refuse what they do not know, and never show a secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tilewatch.infra.errors import SettingsError
from tilewatch.infra.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _no_settings_of_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("TILEWATCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def _config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "data" / "tilewatch" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_without_any_setting_everything_lives_under_the_data_home(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.home == tmp_path / "data" / "tilewatch"
    assert settings.spool_folder == settings.home / "spool"
    assert settings.s3_endpoint is None


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _config(tmp_path, "s3_bucket: from-file\nlog_level: INFO\n")
    monkeypatch.setenv("TILEWATCH_S3_BUCKET", "from-environment")
    settings = load_settings()
    assert (settings.s3_bucket, settings.log_level) == ("from-environment", "INFO")


def test_an_unknown_key_is_an_error_that_names_file_key_and_what_is_allowed(tmp_path: Path) -> None:
    path = _config(tmp_path, "s3_buket: typo\n")
    with pytest.raises(SettingsError, match="s3_buket") as caught:
        load_settings()
    assert str(path) in str(caught.value)
    assert "s3_bucket" in caught.value.hint


def test_a_bad_value_in_the_file_names_file_and_key(tmp_path: Path) -> None:
    path = _config(tmp_path, "log_level: LOUD\n")
    with pytest.raises(SettingsError, match="log_level") as caught:
        load_settings()
    assert str(path) in str(caught.value)


def test_a_bad_value_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_S3_CHECKSUM_MODE", "never")
    with pytest.raises(SettingsError, match="TILEWATCH_S3_CHECKSUM_MODE"):
        load_settings()


@pytest.mark.parametrize("text", ["a: [1\n", "- a\n- b\n"])
def test_a_file_that_is_not_a_mapping_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = _config(tmp_path, text)
    with pytest.raises(SettingsError, match=str(path)):
        load_settings()


def test_a_named_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_CONFIG", "/nowhere/config.yaml")
    with pytest.raises(SettingsError, match="/nowhere/config.yaml"):
        load_settings()


def test_an_endpoint_without_its_keys_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_S3_ENDPOINT", "http://store.example:9000")
    with pytest.raises(SettingsError, match="s3_access_key"):
        load_settings()


def test_a_secret_is_shown_neither_by_settings_nor_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_S3_SECRET_KEY", "hush-hush")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    settings = Settings(s3_endpoint="http://a", s3_access_key="k", s3_secret_key="hush-hush")  # type: ignore[arg-type]
    assert "hush" not in f"{caught.value} {caught.value.hint} {settings!r} {settings.model_dump_json()}"


def test_a_webhook_that_is_no_address_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_ALERT_WEBHOOK", "hooks.example/hush-hush")
    with pytest.raises(SettingsError, match="an address starts with http") as caught:
        load_settings()
    assert "hush" not in f"{caught.value} {caught.value.hint}"


def test_prepare_makes_home_private_and_the_lock_folder_common(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    settings.prepare()
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o1777


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="home: .*cannot be created"):
        Settings(home=tmp_path / "file" / "home", lock_folder=tmp_path).prepare()


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
