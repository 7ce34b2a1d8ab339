"""The build on this host: what it is now, whether it is still the same, and what it is called."""

from __future__ import annotations

from infra.archive import Archive
from infra.errors import TilewatchError
from infra.settings import Settings
from tasks.measure.run import Description, describe


class BuildChangedError(TilewatchError):
    """The build is another one than the one a run was made for."""


def present_build(settings: Settings, agent: str) -> Description:
    """What the measuring interpreter would measure with now. Raises MeasureError."""
    return describe(str(settings.measure_python), agent)


def refuse_other_build(settings: Settings, agent: str, build_id: str) -> Description:
    """The present build. Raises BuildChangedError where its hash is not ``build_id``."""
    present = present_build(settings, agent)
    if present.build_id != build_id:
        raise BuildChangedError(
            f"the build is {present.build_id} and this run is about {build_id}: it changed meanwhile",
            "Run again when the installation is finished; nothing was judged",
        )
    return present


def newest_label(archive: Archive, build_id: str) -> str | None:
    """Label under which ``build_id`` was measured last; None where it never was."""
    runs = archive.tables.scan("runs", [("build_id", "==", build_id)], ["run_id", "build"]).to_pylist()
    return max(runs, key=lambda r: r["run_id"])["build"] if runs else None
