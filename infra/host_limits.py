"""What the parameters of a server may make this host open or execute: what its own settings name.

At a prompt a person may name any file that is his. In a process that an agent started, parameters come from
whoever has the login of the Prefect server.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tilewatch.data_contracts.errors import USAGE, TilewatchError
from tilewatch.infra.errors import SettingsError
from tilewatch.infra.fleet_names import OWN_QUEUE
from tilewatch.infra.settings import Settings
from tilewatch.tasks.measure.environment import (
    BuildEnvironment,
    BuildEnvironmentError,
    of_facts,
    parse_environment,
)


class NotAllowedHereError(TilewatchError):
    """A parameter that would open or execute what this host does not allow; the hint says how to allow it."""

    exit_code = USAGE


def asked_by_server() -> bool:
    """Whether this process was started by an agent, so that its parameters came from a server."""
    return OWN_QUEUE in os.environ


def allowed_environments(
    settings: Settings, asked: Iterable[BuildEnvironment]
) -> tuple[BuildEnvironment, ...]:
    """The builds to measure: from a server their labels alone, looked up in the host's own list.

    Raises NotAllowedHereError for a label that is not in the list, or for other paths than the list has;
    SettingsError where an entry of the list cannot be used.
    """
    return tuple(_listed(settings, one) for one in asked) if asked_by_server() else tuple(asked)


def refuse_foreign_environment(settings: Settings, facts: Mapping[str, str]) -> None:
    """Check what the document of another host's run says its processes are started under.

    Raises as ``allowed_environments`` does.
    """
    if (found := of_facts(facts)) is not None:
        _listed(settings, found)


def allowed_paths(settings: Settings, paths: Iterable[str]) -> list[Path]:
    """The paths to ingest: from a server only those below the host's ``ingest_folders``, links resolved.

    Raises NotAllowedHereError naming the first one that lies elsewhere.
    """
    if not asked_by_server():
        return [Path(path) for path in paths]
    folders = [folder.resolve() for folder in settings.allowed_ingest_folders]
    found = [Path(path).resolve() for path in paths]
    for path in found:
        if not any(path.is_relative_to(folder) for folder in folders):
            raise NotAllowedHereError(
                f"{path} is not below a folder that this host lets a server read: "
                f"{', '.join(map(str, folders))}",
                "Put the files there, or add their folder to ingest_folders in the host's config.yaml; "
                "`tilewatch ingest` on the host itself takes any path",
            )
    return found


def _listed(settings: Settings, asked: BuildEnvironment) -> BuildEnvironment:
    text = settings.environments.get(asked.label)
    if text is None:
        known = ", ".join(sorted(settings.environments)) or "none"
        raise NotAllowedHereError(
            f"this host has no environment {asked.label!r}; it has: {known}",
            "List it under environments in the host's config.yaml, as LABEL: /path/set_env.sh",
        )
    try:
        own = parse_environment(f"{asked.label}={text}")
    except BuildEnvironmentError as error:
        raise SettingsError(f"environments: {error}") from error
    if asked not in (own, BuildEnvironment(asked.label)):
        raise NotAllowedHereError(
            f"environment {asked.label!r}: a server may give its label alone, and the paths it gives are not "
            "those of this host",
            "Leave set_env, python and library_path empty",
        )
    return own
