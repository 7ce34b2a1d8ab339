"""Archived runs that share a label although their version files differ: they were pooled as one build."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa


@dataclass(frozen=True)
class SharedLabel:
    """One version file that runs of one label state differently: texts by run, first line of each."""

    build: str
    file: str
    runs: tuple[tuple[str, ...], ...]
    texts: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What a person must know: which runs are not one build, and by which file."""
        sides = "; ".join(
            f"{', '.join(runs)} say {_first_difference(self.texts, place)}"
            for place, runs in enumerate(self.runs)
        )
        return f"label {self.build} names more than one build: {self.file} differs ({sides})"


_PREFIX = "version_files."
_STATEMENT = f"""
WITH entries AS (
    SELECT build, run_id, unnest(map_entries(environment)) AS entry FROM captures
), files AS (
    SELECT DISTINCT build, run_id, entry.key[{len(_PREFIX) + 1}:] AS file, entry.value AS text
    FROM entries WHERE starts_with(entry.key, '{_PREFIX}')
)
SELECT build, file, text, list(run_id ORDER BY run_id) AS runs
FROM files WHERE (build, file) IN
    (SELECT (build, file) FROM files GROUP BY build, file HAVING count(DISTINCT text) > 1)
GROUP BY build, file, text ORDER BY build, file, min(run_id), text
"""


def shared_labels(captures: pa.Table) -> list[SharedLabel]:
    """Labels of table ``captures`` under which a version file has more than one text, by label and file."""
    with duckdb.connect() as database:
        database.register("captures", captures.select(["build", "run_id", "environment"]))
        rows = database.sql(_STATEMENT).fetchall()
    found: dict[tuple[str, str], list[tuple[str, tuple[str, ...]]]] = {}
    for build, file, text, runs in rows:
        found.setdefault((build, file), []).append((text, tuple(runs)))
    return [
        SharedLabel(build, file, tuple(runs for _, runs in sides), tuple(text for text, _ in sides))
        for (build, file), sides in found.items()
    ]


def _first_difference(texts: tuple[str, ...], place: int) -> str:
    """The first line of one text that another one lacks."""
    others = set.intersection(*(set(text.splitlines()) for text in texts))
    own = [line.strip() for line in texts[place].splitlines() if line.strip() and line not in others]
    return own[0] if own else "less"
