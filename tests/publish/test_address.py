"""A comparison is published once, completely, at an address that stays."""

from __future__ import annotations

import hashlib
import io
import threading
from dataclasses import dataclass

import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest

from tilewatch.tasks.publish.address import PublishError, latest_version, publish_comparison

FOLDER = "comparisons/cann-8.2/cann-8.3"


@dataclass(frozen=True)
class Item:
    key: str
    size_bytes: int


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


class MemoryStore:
    """The store's promises in memory; dies at its ``fatal_write``-th write, before or after it is done."""

    def __init__(self):
        self.objects: dict[str, bytes] = {}
        self.writes: list[str] = []
        self.fatal_write: int | None = None
        self.dies_after_writing = False
        self.lock = threading.Lock()

    def put_new(self, key, body):
        with self.lock:
            if key in self.objects:
                if self.objects[key] != body:
                    raise OSError(f"{key} exists with another content")
                return False
            self._write(key, body)
            return True

    def replace(self, key, body):
        with self.lock:
            self._write(key, body)

    def _write(self, key, body):
        fatal = self.fatal_write == len(self.writes)
        if fatal and not self.dies_after_writing:
            raise Killed
        self.objects[key] = body
        self.writes.append(key)
        if fatal:
            raise Killed

    def get(self, key):
        return self.objects[key]

    def open_read(self, key):
        return io.BytesIO(self.objects[key])

    def exists(self, key):
        return key in self.objects

    def list(self, prefix):
        with self.lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix))
        return iter([Item(key, len(self.objects[key])) for key in keys])


@pytest.fixture(params=["memory", "embedded"])
def store(request):
    if request.param == "memory":
        return MemoryStore()
    try:
        return request.getfixturevalue("object_store")
    except pytest.FixtureLookupError:
        pytest.skip("no fixture object_store in this checkout")


def publish(store, comparison, plan="plan", report="<html>"):
    return publish_comparison(
        store,
        comparison,
        plan_hashes=[plan],
        pages={"report.html": report, "validation.html": "<html>"},
    )


def test_the_first_publication_is_version_1_with_all_its_files(store, comparison):
    published = publish(store, comparison, report="<html>report")
    assert (published.address, published.version, published.created) == (f"{FOLDER}/v1", 1, True)
    names = {item.key.removeprefix(f"{FOLDER}/v1/") for item in store.list(f"{FOLDER}/v1/")}
    assert names == {
        "comparison.parquet",
        "comparison.csv",
        "comparison.json",
        "report.html",
        "validation.html",
    }
    assert store.get(f"{FOLDER}/v1/report.html") == b"<html>report"
    assert orjson.loads(store.get(f"{FOLDER}/latest.json")) == {"version": 1, "address": f"{FOLDER}/v1"}


def test_the_same_identity_again_is_the_same_version_and_creates_nothing(store, comparison):
    publish(store, comparison)
    before = {item.key: store.get(item.key) for item in store.list(FOLDER)}
    again = publish(store, comparison, report="<html>rendered later")
    assert (again.version, again.created) == (1, False)
    assert {item.key: store.get(item.key) for item in store.list(FOLDER)} == before


def test_verdicts_recomputed_later_do_not_replace_the_published_ones(store, comparison):
    first = publish(store, comparison)
    position = comparison.column_names.index("floor_ratio")
    floors = pa.array([1.5] * comparison.num_rows)
    again = publish(store, comparison.set_column(position, comparison.schema.field("floor_ratio"), floors))
    assert not again.created and again.comparison.equals(first.comparison)


@pytest.mark.parametrize(("column", "value"), [("overrides", ["launch_mode"]), ("confirmed", True)])
def test_another_choice_of_the_user_is_another_version(comparison, column, value):
    store = MemoryStore()
    publish(store, comparison)
    field = comparison.schema.field(column)
    chosen = pa.array([value] * comparison.num_rows, field.type)
    other = comparison.set_column(comparison.column_names.index(column), field, chosen)
    assert publish(store, other).version == 2


def test_another_plan_is_the_next_version_beside_the_first(store, comparison):
    publish(store, comparison)
    second = publish(store, comparison, plan="other plan")
    assert (second.version, second.created) == (2, True)
    assert second.comparison["version"].unique().to_pylist() == [2]
    assert latest_version(store, "cann-8.2", "cann-8.3") == 2
    assert publish(store, comparison).version == 1
    assert latest_version(store, "cann-8.2", "cann-8.3") == 2


def test_files_hold_the_comparison_and_the_mark_holds_their_digests(comparison):
    store = MemoryStore()
    published = publish(store, comparison)
    mark = orjson.loads(store.get(f"{FOLDER}/v1/comparison.json"))
    parquet = store.get(f"{FOLDER}/v1/comparison.parquet")
    assert mark["files"]["comparison.parquet"]["sha256"] == hashlib.sha256(parquet).hexdigest()
    assert pa.parquet.read_table(io.BytesIO(parquet)).equals(published.comparison)
    header, first, *_ = store.get(f"{FOLDER}/v1/comparison.csv").decode().splitlines()
    assert header.startswith('"comparison_id","version"') and "cann: 8.2 -> 8.3" in first


WRITES = ["claim", "parquet", "csv", "report", "validation", "mark", "pointer"]


@pytest.mark.parametrize("dies_after_writing", [False, True])
@pytest.mark.parametrize("write", range(len(WRITES)), ids=WRITES)
def test_a_publisher_killed_at_any_write_shows_nothing_half_and_is_finished_by_the_next(
    comparison, write, dies_after_writing
):
    store = MemoryStore()
    store.fatal_write, store.dies_after_writing = write, dies_after_writing
    with pytest.raises(Killed):
        publish(store, comparison)
    if store.exists(f"{FOLDER}/latest.json"):
        assert store.exists(f"{FOLDER}/v1/comparison.json")
    if store.exists(f"{FOLDER}/v1/comparison.json"):
        assert len(list(store.list(f"{FOLDER}/v1/"))) == 5
    store.fatal_write = None
    assert publish(store, comparison).version == 1
    assert latest_version(store, "cann-8.2", "cann-8.3") == 1


def test_publishers_at_once_make_one_version_of_one_identity(comparison):
    store, found = MemoryStore(), []
    start = threading.Barrier(6)

    def run(number):
        start.wait()
        found.append(publish(store, comparison, plan=f"plan {number % 2}", report=f"<html>{number}"))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(p.version for p in found) == [1, 1, 1, 2, 2, 2]
    assert sorted(p.version for p in found if p.created) == [1, 2]
    assert latest_version(store, "cann-8.2", "cann-8.3") == 2
    assert len(store.writes) - store.writes.count(f"{FOLDER}/latest.json") == 2 * 6


def test_a_pointer_that_an_older_version_overwrote_is_corrected_by_its_writer(comparison):
    class Late(MemoryStore):
        """Between the first publisher's look and its write, a second one publishes completely."""

        other = None

        def replace(self, key, body):
            if self.other:
                other, self.other = self.other, None
                other()
            super().replace(key, body)

    store = Late()
    store.other = lambda: publish(store, comparison, plan="other plan")
    publish(store, comparison)
    assert latest_version(store, "cann-8.2", "cann-8.3") == 2


def test_an_error_of_the_store_is_not_taken_for_a_lost_race(comparison):
    class Full(MemoryStore):
        def put_new(self, key, body):
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        publish(Full(), comparison)


def test_a_label_with_a_slash_is_one_level_of_the_address(comparison):
    position = comparison.column_names.index("candidate")
    labels = pa.repeat("a/b c", comparison.num_rows)
    odd = comparison.set_column(position, comparison.schema.field("candidate"), labels)
    assert publish(MemoryStore(), odd).address == "comparisons/cann-8.2/a%2Fb%20c/v1"


def test_nothing_to_publish_and_two_comparisons_in_one_are_refused(comparison):
    with pytest.raises(PublishError, match="no rows"):
        publish(MemoryStore(), comparison.slice(0, 0))
    position = comparison.column_names.index("baseline")
    labels = pa.array(["x"] + ["y"] * (comparison.num_rows - 1))
    mixed = comparison.set_column(position, comparison.schema.field("baseline"), labels)
    with pytest.raises(PublishError, match="2 values of baseline"):
        publish(MemoryStore(), mixed)


def test_nothing_published_has_no_latest_version():
    assert latest_version(MemoryStore(), "a", "b") is None
