"""Files from elsewhere: databases that hold queries, archives, and a store that does not tell the truth."""

from __future__ import annotations

import json
import sqlite3
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.measure import Batch
from tilewatch.flows.steps.parts import measure_part
from tilewatch.flows.steps.prepare import prepare
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra.archive import Archive
from tilewatch.infra.host_limits import NotAllowedHereError
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.raw_zone import archived_document, document_key
from tilewatch.infra.settings import Settings
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.collect.fetch import fetch_capture
from tilewatch.tasks.collect.manifest import CaptureError
from tilewatch.tasks.collect.unpack import ArchiveError, unpack
from tilewatch.tasks.plan.run_document import RunDocument, RunDocumentError, read_run_document
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import profiler_db

BOMB = (
    "WITH RECURSIVE forever(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM forever) SELECT n AS id FROM forever"
)
"""A query without end."""


@pytest.fixture
def origin() -> Origin:
    """The identity of a capture that nothing else knows of."""
    return Origin("c" * 32, None, "x", "b" * 16, "ingested", None, "measured", None)


@pytest.mark.parametrize("table", ["TASK", "COMPUTE_TASK_INFO", "STRING_IDS", "task"])
def test_a_view_in_the_place_of_a_table_is_no_kernel_database_and_its_query_is_not_run(
    tmp_path: Path, origin: Origin, table: str
) -> None:
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    with sqlite3.connect(path) as database:
        for name in {"TASK", "COMPUTE_TASK_INFO", "STRING_IDS"} - {table.upper()}:
            database.execute(f"CREATE TABLE {name} (id INTEGER, value TEXT)")
        database.execute(f"CREATE VIEW {table} AS {BOMB}")
    begun = time.monotonic()
    result = profiler_db.read(path, origin)
    assert time.monotonic() - begun < 30 and result.table.num_rows == 0
    (refused,) = result.quarantine.to_pylist()
    assert refused["reason"] == f"no table {table.upper()}: not a kernel database"


def test_a_column_that_computes_huge_texts_costs_the_database_and_no_memory(
    tmp_path: Path, origin: Origin
) -> None:
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER,
                globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER,
                streamId INTEGER, taskId INTEGER, modelId INTEGER);
            CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockNum INTEGER,
                mixBlockNum INTEGER, taskType INTEGER, opType INTEGER, inputFormats INTEGER,
                inputDataTypes INTEGER, inputShapes INTEGER, outputFormats INTEGER, outputDataTypes INTEGER,
                outputShapes INTEGER, attrInfo INTEGER, opState INTEGER, hf32Eligible INTEGER);
            CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT AS (hex(zeroblob(20000000))));
            INSERT INTO STRING_IDS (id) VALUES (0);
            INSERT INTO TASK VALUES (1, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0);
            INSERT INTO COMPUTE_TASK_INFO VALUES (0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);""")
    result = profiler_db.read(path, origin)
    assert result.table.num_rows == 0
    (refused,) = result.quarantine.to_pylist()
    assert "the database cannot be read: string or blob too big" in refused["reason"]


def test_a_database_with_triggers_is_read_without_a_trace(tmp_path: Path, origin: Origin) -> None:
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    with sqlite3.connect(path) as database:
        for name in ("TASK", "COMPUTE_TASK_INFO", "STRING_IDS"):
            database.execute(f"CREATE TABLE {name} (id INTEGER, value TEXT)")
        database.execute("CREATE TRIGGER t AFTER INSERT ON TASK BEGIN DELETE FROM STRING_IDS; END")
    before = path.read_bytes()
    assert profiler_db.read(path, origin).table.num_rows == 0
    assert [p.name for p in tmp_path.iterdir()] == [path.name] and path.read_bytes() == before


def test_an_archive_leads_nowhere_but_below_its_target(tmp_path: Path) -> None:
    """One of each kind; ``tests/collect/test_unpack.py`` has them all."""
    for number, (name, kind, link) in enumerate(
        [("../up", tarfile.REGTYPE, ""), ("/abs", tarfile.REGTYPE, ""), ("l", tarfile.SYMTYPE, "/etc"),
         ("h", tarfile.LNKTYPE, "../up"), ("p", tarfile.FIFOTYPE, "")]
    ):  # fmt: skip
        path = tmp_path / f"{number}.tar"
        with tarfile.open(path, "w") as archive:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, link
            archive.addfile(entry)
        with pytest.raises(ArchiveError, match=f"{number}.tar: entry '{name}' is"):
            unpack(path, tmp_path / "out")
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".tar"] * 5


@pytest.fixture
def archive(new_bucket: Callable[[], Endpoint]) -> Archive:
    """An archive whose objects anybody may have written."""
    endpoint = new_bucket()
    return Archive(endpoint, ObjectStore(endpoint), TableStore(endpoint))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    made.prepare()
    return made


@pytest.fixture
def document(settings: Settings, archive: Archive) -> RunDocument:
    """The document of a run over several devices, as the host that began it put it into the store."""
    asked = SweepRequest(experiments=("A",), preset="smoke", agent="simulated", arm="standalone", seed=7)
    return prepare(settings, archive, asked, experiments(settings)).document


def test_the_document_of_another_run_or_with_names_that_climb_is_refused(
    archive: Archive, document: RunDocument, settings: Settings
) -> None:
    archive.objects.put_new(document_key("mine"), document.to_json())
    with pytest.raises(RunDocumentError, match=f"of another run, '{document.run_id}'"):
        archived_document(archive, "mine")
    plan = document.plans["A"]
    process = replace(plan.processes[0], arm="../../../evil")
    lies = [
        replace(document, run_id="../../evil"),
        replace(document, beside=("/tmp/evil",)),
        replace(document, plans={"../A": plan}),
        replace(document, plans={"A": replace(plan, processes=(process,))}),
    ]
    for lie in lies:
        with pytest.raises(RunDocumentError, match="cannot be the name of a folder"):
            read_run_document(lie.to_json())
    assert read_run_document(document.to_json()) == document


def test_a_part_takes_no_program_and_no_variable_from_the_store(
    archive: Archive, document: RunDocument, settings: Settings, tmp_path: Path
) -> None:
    mark = tmp_path / "reached"
    script = tmp_path / "set_env.sh"
    script.write_text(f"touch {mark}\n")
    plan = document.plans["A"]
    preloaded = tuple(replace(p, env={"LD_PRELOAD": str(script)}) for p in plan.processes)
    lies = {
        "this host has no environment 'new'": {"environment": {"label": "new", "set_env": str(script)}},
        "sets LD_PRELOAD, which no experiment of this host does": {
            "plans": {"A": replace(plan, processes=preloaded)}
        },
    }
    for number, (told, changes) in enumerate(lies.items()):
        lie = replace(document, run_id=f"lie{number}", **changes)
        archive.objects.put_new(document_key(lie.run_id), lie.to_json())
        with pytest.raises(NotAllowedHereError, match=told):
            measure_part(settings, archive, lie.run_id, [Batch("A", 0)], "q", None, "Ascend910_9391")
    assert not mark.exists() and not (settings.spool_folder / "parts").exists()


def test_a_capture_from_the_store_writes_nothing_outside_its_folder(archive: Archive, tmp_path: Path) -> None:
    content = json.dumps(
        {"schema_version": 1, "files": [{"path": "../evil", "size_bytes": 1, "sha256": "0" * 64}]}
    ).encode()
    archive.objects.put_new("raw/A/b/c/manifest.json", content)
    with pytest.raises(CaptureError, match=r"path '\.\./evil' is not allowed"):
        fetch_capture(archive.objects, "raw/A/b/c", tmp_path / "into" / "c")
    assert not (tmp_path / "into").exists() and not (tmp_path / "evil").exists()
