"""Compare two profiles where they lie: no store, no server, no network, nothing written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewatch.tasks.analyse.profiles.compare import ProfilesCompared


def as_path(name: str) -> Path | None:
    """The path that a name given to `compare` stands for; None where nothing lies there.

    A path that exists is taken for one, whatever the archive holds; ``build:NAME`` never is.
    """
    path = Path(name)
    return path if not name.startswith("build:") and path.exists() else None


def compare_paths(
    base: Path, candidate: Path, *, rank: int | None = None, overrides: Sequence[str] = ()
) -> ProfilesCompared:
    """Read both sides and compare them. ``rank`` chooses one rank of each. Raises NoProfileError."""
    # Imported here: `as_path` decides for every name, and most of them are no paths.
    from tilewatch.tasks.analyse.profiles.compare import compare_profiles
    from tilewatch.tasks.ingest.profiles import read_profiles

    sides = [read_profiles(path, rank=rank) for path in (base, candidate)]
    return compare_profiles(*sides, names=(str(base), str(candidate)), overrides=overrides)
