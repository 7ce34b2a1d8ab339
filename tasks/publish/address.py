"""Comparisons at their stable address: ``comparisons/<baseline>/<candidate>/v<N>``, published once.

Every family has a folder of its own in that of the pair (``…/serving/v<N>``; operators have the pair's), in
which lie

``claims/v<N>.json``
    created first and only once: which identity version N belongs to;
``v<N>/comparison.parquet, comparison.csv`` and pages (``report.html, validation.html``)
    created only, never replaced;
``v<N>/comparison.json``
    created when all of these are there: a version without it does not exist for a reader;
``latest.json``
    the pointer to the highest version, written last and never moved back.

A publisher that dies leaves a claim; the next one with the same identity finishes its version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson
import pyarrow as pa

from tilewatch.data_contracts import conform
from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.collect.store import ObjectStore
from tilewatch.tasks.publish.families import OPERATORS, ROOT, Family
from tilewatch.tasks.publish.files import comparison_csv, comparison_parquet, read_parquet

MARK = "comparison.json"
POINTER = "latest.json"


class PointerStore(ObjectStore, Protocol):
    """An object store that can also rewrite a pointer."""

    def replace(self, key: str, body: bytes) -> None:
        """Write ``key`` whatever it held."""


class PublishError(TilewatchError):
    """A table that is no single comparison; the message names the column."""


@dataclass(frozen=True)
class Identity:
    """What makes two publications the same one; a build measured again has new runs and so new verdicts."""

    baseline: str
    candidate: str
    base_build_id: str
    candidate_build_id: str
    base_run_ids: tuple[str, ...]
    candidate_run_ids: tuple[str, ...]
    comparison_ids: tuple[str, ...]
    plan_hashes: tuple[str, ...]
    method_hashes: tuple[str, ...]
    analysis_version: int
    overrides: tuple[str, ...]
    confirmed: bool
    """True where a second lease was asked."""

    @property
    def text(self) -> bytes:
        """Canonical JSON; equal for equal identities and only for these."""
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True)
class Published:
    """Where a comparison is. ``created`` is False where it was published before."""

    address: str
    version: int
    created: bool
    comparison: pa.Table
    """The comparison with its version as it was published, whoever published it first."""


def identity_of(comparison: pa.Table, plan_hashes: Sequence[str], family: Family = OPERATORS) -> Identity:
    """Identity of a table of one comparison; a column that its family does not have says nothing.

    Raises PublishError where the table mixes comparisons.
    """
    if not comparison.num_rows:
        raise PublishError("nothing to publish: the comparison has no rows")
    return Identity(
        baseline=_one(comparison, "baseline"),
        candidate=_one(comparison, "candidate"),
        base_build_id=_one(comparison, "base_build_id"),
        candidate_build_id=_one(comparison, "candidate_build_id"),
        base_run_ids=_members(comparison, family.stands_on[0]),
        candidate_run_ids=_members(comparison, family.stands_on[1]),
        comparison_ids=_distinct(comparison, "comparison_id"),
        plan_hashes=tuple(sorted(set(plan_hashes))),
        method_hashes=_distinct(comparison, "method_hash"),
        analysis_version=_one(comparison, "analysis_version"),
        overrides=_members(comparison, "overrides"),
        confirmed="confirmed" in comparison.column_names
        and comparison["confirmed"].null_count < comparison.num_rows,
    )


def publish_comparison(
    store: PointerStore,
    comparison: pa.Table,
    *,
    plan_hashes: Sequence[str],
    pages: Mapping[str, str],
    family: Family = OPERATORS,
    taken: int = 0,
) -> Published:
    """Publish ``comparison`` once; again, or from two places at once, it is the same version of one content.

    ``pages`` are texts by file name, ``report.html`` among them. ``taken`` is the highest version that the
    pair has without a claim (rows from before there was an address). Safe to kill at any instant: nothing is
    visible before it is complete. Raises PublishError for a table that is not a single comparison; errors of
    the store pass through.
    """
    identity = identity_of(comparison, plan_hashes, family)
    folder = family.pair_folder(identity.baseline, identity.candidate)
    version = _claim(store, folder, identity, taken)
    address = f"{folder}/v{version}"
    numbered = _with_version(conform(family.table, comparison), version)
    created = False
    if not store.exists(f"{address}/{MARK}"):
        files = {
            "comparison.parquet": comparison_parquet(numbered),
            "comparison.csv": comparison_csv(numbered),
            **{name: text.encode() for name, text in pages.items()},
        }
        stored = {name: _create(store, f"{address}/{name}", body) for name, body in files.items()}
        mark = _mark(identity, version, stored)
        created = _create(store, f"{address}/{MARK}", mark) is mark
    _advance_pointer(store, folder)
    published = numbered if created else read_parquet(store.get(f"{address}/comparison.parquet"))
    return Published(address, version, created, conform(family.table, published))


def latest_version(
    store: ObjectStore, baseline: str, candidate: str, family: Family = OPERATORS
) -> int | None:
    """Version that ``latest`` points to; None where nothing is published yet."""
    return _pointed(store, family.pair_folder(baseline, candidate)) or None


def published_addresses(store: ObjectStore) -> list[str]:
    """Every complete publication of the store, of whatever family, by its mark."""
    keys = (item.key for item in store.list(f"{ROOT}/"))
    return [key.removesuffix(f"/{MARK}") for key in keys if re.search(rf"/v\d+/{re.escape(MARK)}$", key)]


def marked_runs(store: ObjectStore, address: str) -> tuple[str, ...]:
    """Runs that the publication at ``address`` stands on, as its mark says."""
    identity = orjson.loads(store.get(f"{address}/{MARK}"))["identity"]
    return (*identity["base_run_ids"], *identity["candidate_run_ids"])


def _claim(store: ObjectStore, folder: str, identity: Identity, taken: int) -> int:
    """The version that belongs to ``identity``: an older claim of it, or the first free number."""
    prefix = f"{folder}/claims/"
    claimed = _numbers(store, prefix, r"v(\d+)\.json")
    for number in claimed:
        if store.get(f"{prefix}v{number}.json") == identity.text:
            return number
    number = max([*claimed, taken]) + 1
    while _create(store, f"{prefix}v{number}.json", identity.text) != identity.text:
        number += 1
    return number


def _create(store: ObjectStore, key: str, body: bytes) -> bytes:
    """What is under ``key`` now: ``body`` itself where it was created here, else what was there before."""
    if not store.exists(key):
        try:
            if store.put_new(key, body):
                return body
        except Exception:
            # A store answers "exists with another content" by an error of its own; any other one goes on.
            if not store.exists(key):
                raise
    return store.get(key)


def _advance_pointer(store: PointerStore, folder: str) -> None:
    """Let ``latest`` name the highest complete version.

    Checked again after each write: of two publishers that finish at once, the one that wrote last sees the
    other's version and corrects itself.
    """
    while (highest := _highest(store, folder)) > _pointed(store, folder):
        body = {"version": highest, "address": f"{folder}/v{highest}"}
        store.replace(f"{folder}/{POINTER}", orjson.dumps(body))


def _highest(store: ObjectStore, folder: str) -> int:
    return max(_numbers(store, f"{folder}/v", rf"(\d+)/{re.escape(MARK)}"), default=0)


def _pointed(store: ObjectStore, folder: str) -> int:
    key = f"{folder}/{POINTER}"
    return int(orjson.loads(store.get(key))["version"]) if store.exists(key) else 0


def _numbers(store: ObjectStore, prefix: str, pattern: str) -> list[int]:
    found = (re.fullmatch(pattern, item.key.removeprefix(prefix)) for item in store.list(prefix))
    return sorted(int(match[1]) for match in found if match)


def _mark(identity: Identity, version: int, files: Mapping[str, bytes]) -> bytes:
    digests = {
        name: {"size_bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        for name, body in files.items()
    }
    body = {
        "version": version,
        "identity": asdict(identity),
        "identity_hash": hashlib.sha256(identity.text).hexdigest(),
        "files": digests,
    }
    return orjson.dumps(body, option=orjson.OPT_INDENT_2)


def _with_version(comparison: pa.Table, version: int) -> pa.Table:
    position = comparison.column_names.index("version")
    column = pa.repeat(pa.scalar(version, pa.int64()), comparison.num_rows)
    return comparison.set_column(position, comparison.schema.field("version"), column)


def _distinct(table: pa.Table, column: str) -> tuple[str, ...]:
    if column not in table.column_names:
        return ()
    return tuple(sorted(set(table[column].unique().to_pylist())))


def _one(table: pa.Table, column: str) -> Any:
    values = table[column].unique().to_pylist()
    if len(values) != 1:
        raise PublishError(f"the comparison has {len(values)} values of {column}: {values[:5]}")
    return values[0]


def _members(table: pa.Table, column: str) -> tuple[str, ...]:
    return tuple(sorted(set(table[column].combine_chunks().flatten().to_pylist())))
