"""Version files and ``npu-smi`` prints → one build identity and one device state. Nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilewatch.tasks.builds.packages import label_part
from tilewatch.tasks.plan.build_id import build_id
from tilewatch.tasks.read.host.npu_smi import DeviceState, looks_like_npu_smi, read_npu_smi
from tilewatch.tasks.read.host.version_files import VersionFile, read_version_file, split_collected

UNKNOWN = "unknown"
_AUTHORITY = (
    "install_info", "version_cfg", "driver", "firmware", "package", "atb", "pip_list", "profiler_info",
)  # fmt: skip


@dataclass(frozen=True)
class BuildIdentity:
    """The software under test as its version files state it.

    ``conflicts`` are components that two files state differently. The more authoritative kind of file holds
    (a toolkit of 9.3.0 may carry a package that says 9.2.0); of two files of one kind neither does.
    """

    components: dict[str, str] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()

    @property
    def build_id(self) -> str:
        """Hash of the components; ``unknown`` where there are none."""
        return build_id(self.components) if self.components else UNKNOWN

    @property
    def cann_version(self) -> str | None:
        """CANN version, where a file states it."""
        return self.components.get("cann")

    @property
    def label(self) -> str:
        """A label for a build that nobody named: its releases and a piece of its hash, or ``unknown``."""
        return f"cann{label_part(self.components)}-{self.build_id[:6]}" if self.cann_version else UNKNOWN


@dataclass(frozen=True)
class Environment:
    """What was found: identity, device state of the last ``npu-smi`` print, files used, files of no use."""

    identity: BuildIdentity
    device_state: DeviceState | None
    version_files: tuple[VersionFile, ...]
    unread: tuple[str, ...]


def read_environment(files: Iterable[tuple[str, str]]) -> Environment:
    """Read version files and ``npu-smi`` prints given as (path, text), in the order given."""
    found: list[VersionFile] = []
    unread: list[str] = []
    state: DeviceState | None = None
    for path, text in files:
        known = [v for part in split_collected(path, text) if (v := read_version_file(*part)) is not None]
        found += known
        if looks_like_npu_smi(text):
            state = read_npu_smi(text)
        elif not known:
            unread.append(path)
    return Environment(_identity(found), state, tuple(found), tuple(unread))


def _identity(files: Sequence[VersionFile]) -> BuildIdentity:
    components: dict[str, str] = {}
    stated_by: dict[str, VersionFile] = {}
    conflicts = []
    ambiguous = set()
    for file in sorted(files, key=lambda f: _AUTHORITY.index(f.kind)):
        for name, value in file.components.items():
            first = stated_by.setdefault(name, file)
            if components.setdefault(name, value) == value:
                continue
            conflicts.append(f"{name}: {first.path} says {components[name]}, {file.path} says {value}")
            if first.kind == file.kind:
                ambiguous.add(name)
    kept = {name: value for name, value in components.items() if name not in ambiguous}
    return BuildIdentity(kept, tuple(conflicts))
