"""The local spool: a folder a run, holding its document and its captures until they are archived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ulid import ULID

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.infra.errors import NoSpaceError, is_full
from tilewatch.infra.settings import Settings
from tilewatch.tasks.files import write_whole
from tilewatch.tasks.plan.plan import Process
from tilewatch.tasks.plan.run_document import RunDocument, read_run_document
from tilewatch.tasks.plan.serving_plan import Launch

ASKER = "asked_by"


class SpoolError(TilewatchError):
    """A run that is not in the spool; the hint names the runs that are."""


@dataclass(frozen=True)
class RunFolder:
    """One run in the spool."""

    path: Path
    document: RunDocument

    def capture_folder(self, experiment: str, process: Process | Launch) -> Path:
        """Folder that the process, or the launch of a server, leaves its capture in."""
        return self.path / experiment / process.name

    def is_complete(self, experiment: str, process: Process | Launch) -> bool:
        """True where the process has left a manifest, which is written last."""
        return (self.capture_folder(experiment, process) / "manifest.json").is_file()

    def captures(self, experiment: str) -> list[Path]:
        """Folders of this experiment's complete captures, in measuring order."""
        serving = self.document.serving.get(experiment)
        planned = serving.launches if serving else self.document.plans[experiment].processes
        return [self.capture_folder(experiment, p) for p in planned if self.is_complete(experiment, p)]

    def remaining(self) -> Iterator[tuple[str, Process]]:
        """Processes that have not left a complete capture, in measuring order."""
        for letter, plan in self.document.plans.items():
            yield from ((letter, p) for p in plan.processes if not self.is_complete(letter, p))

    def remaining_launches(self) -> Iterator[tuple[str, Launch]]:
        """Launches of servers that have not left a complete capture, in order."""
        for letter, plan in self.document.serving.items():
            yield from ((letter, x) for x in plan.launches if not self.is_complete(letter, x))


def new_run_id() -> str:
    """A new ULID: sorts by time of creation."""
    return str(ULID())


def create(settings: Settings, document: RunDocument) -> RunFolder:
    """Make the folder of a new run. Raises NoSpaceError or SpoolError where it cannot be written."""
    path = settings.spool_folder / document.run_id
    _refuse_link(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / "run.json", document.to_json(), durable=True)
    except OSError as error:
        if is_full(error):
            raise NoSpaceError(f"no space left for the spool at {path}", "Free space, then resume") from error
        raise SpoolError(f"the spool at {path} cannot be written: {error.strerror}") from error
    return RunFolder(path, document)


def find(settings: Settings, run_id: str) -> RunFolder:
    """The run ``run_id`` in the spool. Raises SpoolError naming the runs that can be resumed."""
    path = settings.spool_folder / run_id
    _refuse_link(path)
    if not (path / "run.json").is_file():
        known = ", ".join(runs(settings)) or "none"
        raise SpoolError(f"run {run_id} is not in the spool of this host", f"Runs that are: {known}")
    return RunFolder(path, read_run_document((path / "run.json").read_bytes(), path / "run.json"))


def _refuse_link(path: Path) -> None:
    """Raise SpoolError for a link in the place of a run: what it leads to is nobody's capture."""
    if path.is_symlink() or (path / "run.json").is_symlink():
        raise SpoolError(
            f"{path} is a link, or its run.json is: somebody planted it in the spool",
            "Remove it, and look who may write to the spool: tilewatch doctor",
        )


def note_asker(folder: RunFolder, asker: str) -> None:
    """Remember what asked for the run, so that the same asker, started again, goes on with it."""
    write_whole(folder.path / ASKER, asker, durable=True)


def asked_by(settings: Settings, asker: str) -> str | None:
    """The newest run in the spool that ``asker`` asked for; None where there is none."""
    notes = sorted(settings.spool_folder.glob(f"*/{ASKER}"), reverse=True)
    return next((note.parent.name for note in notes if note.read_text() == asker), None)


def runs(settings: Settings) -> list[str]:
    """Runs in the spool, oldest first."""
    folder = settings.spool_folder
    return sorted(p.parent.name for p in folder.glob("*/run.json")) if folder.is_dir() else []
