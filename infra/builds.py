"""The build on this host: what it is now, whether it is still the same, and what it is called."""

from __future__ import annotations

from dataclasses import dataclass

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings
from tilewatch.infra.simulated_device import AGENT, chosen_build
from tilewatch.tasks.builds.packages import release_text
from tilewatch.tasks.measure.run import describe
from tilewatch.tasks.simulate.capture import device_facts


class BuildChangedError(TilewatchError):
    """The build is another one than the one a run was made for."""


@dataclass(frozen=True)
class PresentBuild:
    """What would be measured now, on what.

    ``cann`` is the release of CANN and those of operator packages that differ from it, as ``release_text``
    spells them; empty where there is no CANN.
    """

    build_id: str
    device_class: str
    cann: str


def present_build(settings: Settings, agent: str, *, label: str | None = None, soc: str = "") -> PresentBuild:
    """What an agent of this kind would measure now; ``label`` and ``soc`` choose the simulated build.

    Raises MeasureError, or SimulatedBuildError.
    """
    if agent == AGENT:
        chosen = chosen_build(label, soc)
        return PresentBuild(
            chosen.build_id, str(device_facts(chosen)["device_class"]), release_text(chosen.components)
        )
    found = describe(str(settings.measure_python), agent)
    return PresentBuild(found.build_id, found.device_class, release_text(found.components))


def newest_label(archive: Archive, build_id: str) -> str | None:
    """Label under which ``build_id`` was measured last; None where it never was."""
    runs = archive.tables.scan("runs", [("build_id", "==", build_id)], ["run_id", "build"]).to_pylist()
    return max(runs, key=lambda r: r["run_id"])["build"] if runs else None
