"""Every setting of tilewatch, read from the environment and from one optional YAML file.

Order of precedence: environment (``TILEWATCH_<NAME>``), then the file (``TILEWATCH_CONFIG``, or
``config.yaml`` in the home folder), then the default.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tilewatch.infra.errors import SettingsError
from tilewatch.infra.placeholders import refuse_placeholders

PREFIX = "TILEWATCH_"


def _default_home() -> Path:
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "tilewatch"


def _default_lock_folder() -> Path:
    system = Path("/run/lock")
    folder = system if os.access(system, os.W_OK) else Path(tempfile.gettempdir())
    return folder / "tilewatch"


class Settings(BaseSettings):
    """The settings. Secrets are ``SecretStr``: they print as stars wherever a settings object is printed."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    home: Path = Field(
        default_factory=_default_home,
        description="Folder of everything tilewatch keeps on this host: embedded store, spool, config.yaml",
    )
    s3_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/]+/?$",
        description="Address of an S3-compatible store; without it the embedded store is started under home",
    )
    s3_bucket: str = Field(
        "tilewatch",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        description="Bucket that holds the raw zone, the tables and the comparisons",
    )
    s3_access_key: SecretStr | None = Field(None, description="Access key of the external store")
    s3_secret_key: SecretStr | None = Field(None, description="Secret key of the external store")
    s3_region: str = Field("us-east-1", description="Region name sent to the store")
    s3_checksum_mode: Literal["when_supported", "when_required"] = Field(
        "when_supported",
        description="When requests carry the SDK's own checksums; some stores accept only when_required",
    )
    measure_python: Path = Field(
        default_factory=lambda: Path(sys.executable),
        description="Interpreter (3.9 or newer, with numpy and torch) that runs the measuring program",
    )
    sglang_python: Path | None = Field(
        None,
        description="Interpreter that has SGLang, whose client then loads the servers of experiment E; "
        "default: measure_python where SGLang is installed there, else the built-in client",
    )
    lock_folder: Path = Field(
        default_factory=_default_lock_folder,
        description="Folder of the device locks; one per host, shared by all its users",
    )
    tenants: Literal["refuse", "flag"] = Field(
        "refuse",
        description="Other processes on the card of an NPU: refuse to measure beside them, or record them; "
        "numbers of the two are never compared",
    )
    device: int | None = Field(
        None, ge=0, description="Number of the device on this host that is measured; default the first one"
    )
    spool: Path | None = Field(
        None, description="Folder where captures stay until they are archived; default <home>/spool"
    )
    experiments: Path | None = Field(
        None, description="Folder of experiment files (YAML); default: those that ship with tilewatch"
    )
    environments: dict[str, str] = Field(
        {},
        description="Builds beside the host's own that a server may ask for by label (in config.yaml, "
        "LABEL: /path/set_env.sh[,python=PATH][,library_path=PATH])",
    )
    ingest_folders: tuple[Path, ...] = Field(
        (),
        description="Folders below which an ingest that a server asks for may read (in config.yaml, a list); "
        "default <home>/ingest",
    )
    alert_webhook: SecretStr | None = Field(
        None,
        description='Address that is sent {"text": …} of every confirmed regression; '
        "`tilewatch deploy` hands it to the Prefect server",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "WARNING", description="Least severe log message that is shown"
    )

    @field_validator("home", "measure_python", "sglang_python", "lock_folder", "spool", "experiments")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return None if path is None else Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - keeps symlinks

    @field_validator("alert_webhook")
    @classmethod
    def _http(cls, address: SecretStr | None) -> SecretStr | None:
        if address is not None and not address.get_secret_value().startswith(("http://", "https://")):
            raise ValueError("an address starts with http:// or https://")
        return address

    @model_validator(mode="after")
    def _external_store_is_complete(self) -> Self:
        given = [self.s3_access_key is not None, self.s3_secret_key is not None]
        if self.s3_endpoint is not None and not all(given):
            raise ValueError("s3_endpoint needs s3_access_key and s3_secret_key beside it")
        if self.s3_endpoint is None and any(given):
            raise ValueError("s3_access_key and s3_secret_key belong to an s3_endpoint, which is not set")
        return self

    @property
    def spool_folder(self) -> Path:
        """Folder where captures stay until they are archived."""
        return self.spool or self.home / "spool"

    @property
    def allowed_ingest_folders(self) -> tuple[Path, ...]:
        """Folders below which an ingest that a server asks for may read."""
        return self.ingest_folders or (self.home / "ingest",)

    def prepare(self) -> None:
        """Create the folders: home and spool for the user alone, the lock folder for every user of the host.

        Raises SettingsError naming the setting whose folder cannot be made or written, or is another user's
        link.
        """
        for name, folder, mode in (
            ("home", self.home, 0o700),
            ("spool", self.spool_folder, 0o700),
            ("lock_folder", self.lock_folder, 0o1777),
        ):
            try:
                if folder.is_symlink() and folder.lstat().st_uid not in (0, os.geteuid()):
                    raise SettingsError(
                        f"{name}: {folder} is a link that another user made",
                        f"Set {PREFIX}{name.upper()} to another folder",
                    )
                if not folder.is_dir():
                    folder.mkdir(parents=True, exist_ok=True)
                    folder.chmod(mode)
                writable = os.access(folder, os.W_OK)
            except OSError as error:
                raise SettingsError(f"{name}: {folder} cannot be created: {error.strerror}") from error
            if not writable:
                raise SettingsError(
                    f"{name}: {folder} is not writable", f"Set {PREFIX}{name.upper()} to another folder"
                )


def load_settings() -> Settings:
    """Read the settings of this process. Raises SettingsError: one sentence naming file, key and remedy."""
    refuse_placeholders(os.environ)
    path = _config_file()
    values = _read_config(path) if path is not None else {}
    try:
        return Settings(**{key: value for key, value in values.items() if not _in_environment(key)})
    except ValidationError as error:
        raise _explained(error, path) from None


def _config_file() -> Path | None:
    if named := os.environ.get(PREFIX + "CONFIG"):
        path = Path(named).expanduser()
        if not path.is_file():
            raise SettingsError(
                f"{PREFIX}CONFIG names {path}, which is not a file", "Create it or unset the variable"
            )
        return path
    path = Path(os.environ.get(PREFIX + "HOME") or _default_home()).expanduser() / "config.yaml"
    return path if path.is_file() else None


def read_yaml(path: Path) -> Any:
    """Content of a YAML file. Raises SettingsError naming file and line."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "malformed"
        raise SettingsError(f"{path}{line} is not YAML: {problem}") from error


def _read_config(path: Path) -> dict[str, Any]:
    values = read_yaml(path)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path} must hold 'key: value' lines, not a {type(values).__name__}")
    if unknown := sorted(str(key) for key in values if key not in Settings.model_fields):
        allowed = ", ".join(Settings.model_fields)
        raise SettingsError(f"{path}: unknown setting {', '.join(unknown)}", f"Allowed are: {allowed}")
    return {key: value for key, value in values.items() if value is not None}


def _in_environment(key: str) -> bool:
    return any(name.upper() == PREFIX + key.upper() and value for name, value in os.environ.items())


def _explained(error: ValidationError, path: Path | None) -> SettingsError:
    """One sentence from pydantic's first finding, without the value: it could be a secret."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    problem = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return SettingsError(f"settings do not fit together: {problem}", f"See {path or 'the environment'}")
    key = str(first["loc"][0])
    origin = f"{PREFIX}{key.upper()}" if path is None or _in_environment(key) else f"{path}: {key}"
    field = Settings.model_fields[key]
    return SettingsError(f"{origin}: {problem}", str(field.description))
