"""One normal form for the spellings of a version: ``9.2.0.beta2`` and ``9.2.0-beta.2`` are one release."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

TABLE = Path(__file__).with_name("spellings.yaml")


@dataclass(frozen=True)
class Version:
    """A version as it was written and what it says.

    ``release`` is the normal form, None where the text names no release of CANN (a package's own number, or a
    form that the table does not know; ``spelling`` is then None too). ``inner`` tells builds of one release
    apart.
    """

    raw: str
    release: str | None
    inner: str | None = None
    spelling: str | None = None

    @property
    def known(self) -> bool:
        """False for a form that the table does not know: it is kept as it was written, and said."""
        return self.spelling is not None


def version_of(text: str) -> Version:
    """Read one version. Example: ``version_of("9.2.0.beta2").release`` is ``"9.2.0-beta.2"``."""
    raw = text.strip()
    for spelling in _spellings():
        if found := spelling.pattern.fullmatch(raw):
            parts = {
                name: value.lower() if name == "kind" else value for name, value in found.groupdict().items()
            }
            release = spelling.release.format(**parts) if spelling.release else None
            inner = spelling.inner.format(**parts) if spelling.inner else None
            return Version(raw, release, inner, spelling.name)
    return Version(raw, None)


def normal(text: str) -> str:
    """The release that ``text`` names, or the text itself where it names none."""
    return version_of(text).release or text.strip()


@dataclass(frozen=True)
class _Spelling:
    name: str
    pattern: re.Pattern[str]
    release: str | None
    inner: str | None


@cache
def _spellings() -> tuple[_Spelling, ...]:
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["spellings"]
    return tuple(
        _Spelling(
            row["name"], re.compile(row["pattern"], re.IGNORECASE), row.get("release"), row.get("inner")
        )
        for row in rows
    )
