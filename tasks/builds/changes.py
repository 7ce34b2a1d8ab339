"""What changed between two builds, in words: one line a package, whatever number of its files changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tilewatch.tasks.builds.packages import CANN, package_versions, part_of
from tilewatch.tasks.builds.spelling import normal

ABSENT = "absent"


def changed_components(base: Mapping[str, str], candidate: Mapping[str, str]) -> list[str]:
    """What differs, sorted, as ``name: old -> new``; ``absent`` where a side lacks it.

    A package is one line: its version, else what of it differs under the version it kept. Packages that moved
    with CANN, from its old version to its new one, stand in CANN's line: they are one change.
    """
    changed: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for name in sorted({*base, *candidate}):
        was, now = base.get(name, ABSENT), candidate.get(name, ABSENT)
        if was != now:
            changed[part_of(name)[0]][name] = was, now
    old, new = package_versions(base), package_versions(candidate)
    with_cann = _releases(CANN, old, new) if CANN in changed else None
    moved = {p for p in changed if p != CANN and with_cann and _releases(p, old, new) == with_cann}
    lines = []
    for package, parts in changed.items():
        if package not in moved:
            line = _line(package, parts, old, new)
            lines.append(f"{line} (with {len(moved)} packages)" if package == CANN and moved else line)
    return sorted(lines)


def _versions(package: str, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str]:
    return old.get(package, ABSENT), new.get(package, ABSENT)


def _releases(package: str, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str] | None:
    """Normal forms of a package's versions on both sides; None where a side lacks it."""
    if package not in old or package not in new:
        return None
    return normal(old[package]), normal(new[package])


def _line(
    package: str, parts: Mapping[str, tuple[str, str]], old: Mapping[str, str], new: Mapping[str, str]
) -> str:
    was, now = _versions(package, old, new)
    if was != now:
        return f"{package}: {was} -> {now}"
    if package in parts or was == ABSENT:
        return "; ".join(f"{name}: {before} -> {after}" for name, (before, after) in parts.items())
    shown = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in parts.items())
    return f"{package}: still {now}, but {shown}"
