"""Writers at once lose and double nothing; a killed one leaves a readable table; readers end cleanly."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tilewatch.infra.errors import TableError
from tilewatch.infra.objects import Endpoint
from tilewatch.infra.tables import TableStore, delta

Rows = Callable[..., pa.Table]

WRITER = """
import json, sys
from pathlib import Path
from pydantic import SecretStr
from data_contracts import from_rows
from tilewatch.infra.objects import Endpoint
from tilewatch.infra.tables import TableStore
name, count, shared = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "shared"
where = json.loads(sys.stdin.readline())
if isinstance(where, list):
    url, bucket, access_key, secret_key = where
    where = Endpoint(url, bucket, SecretStr(access_key), SecretStr(secret_key))
else:
    where = Path(where)
tables = TableStore(where)
dull = json.loads(sys.stdin.readline())
for number in range(count):
    run = "same" if shared else f"{name}-{number}"
    rows = [dict(dull, capture_id=f"{run}-c", run_id=run, build="cpu", sample=s) for s in range(10)]
    tables.write("samples", from_rows("samples", rows))
    print(run, flush=True)
"""


def _start(where: Endpoint | Path, dull: str, name: str, count: int, shared: bool) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, name, str(count), "shared" if shared else "own"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(_address(where) + "\n" + dull + "\n")
    process.stdin.flush()
    return process


def _address(where: Endpoint | Path) -> str:
    if isinstance(where, Path):
        return json.dumps(str(where))
    keys = [where.access_key.get_secret_value(), where.secret_key.get_secret_value()]
    return json.dumps([where.url, where.bucket, *keys])


@pytest.fixture
def dull(rows: Rows) -> str:
    return json.dumps({k: v for k, v in rows("samples", [{}]).to_pylist()[0].items() if v is not None})


@pytest.fixture(params=["local", "s3"])
def where(
    request: pytest.FixtureRequest, tmp_path: Path, new_bucket: Callable[[], Endpoint]
) -> Endpoint | Path:
    return tmp_path / "tables" if request.param == "local" else new_bucket()


def test_two_writers_of_twenty_runs_each_lose_none_and_double_none(where: Endpoint | Path, dull: str) -> None:
    writers = [_start(where, dull, name, 20, shared=False) for name in "ab"]
    written = sorted(run for writer in writers for run in writer.communicate()[0].split())
    assert [writer.returncode for writer in writers] == [0, 0]
    found = TableStore(where).query(
        "SELECT run_id, count(*) n, count(DISTINCT sample) d FROM samples GROUP BY 1 ORDER BY 1"
    )
    assert found["run_id"].to_pylist() == written == sorted(f"{w}-{n}" for w in "ab" for n in range(20))
    assert set(found["n"].to_pylist()) == set(found["d"].to_pylist()) == {10}


def test_four_writers_that_find_no_table_create_it_once(where: Endpoint | Path, rows: Rows) -> None:
    barrier = threading.Barrier(4)

    def write(number: int) -> None:
        barrier.wait()
        TableStore(where).write("samples", rows("samples", [{"capture_id": f"c{number}"}]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert sorted(TableStore(where).scan("samples")["capture_id"].to_pylist()) == ["c0", "c1", "c2", "c3"]


def test_two_writers_of_the_same_capture_leave_it_once(where: Endpoint | Path, dull: str) -> None:
    writers = [_start(where, dull, name, 10, shared=True) for name in "ab"]
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(TableStore(where).scan("samples")["sample"].to_pylist()) == list(range(10))


def test_a_killed_writer_leaves_whole_runs_only(tmp_path: Path, dull: str) -> None:
    for attempt in range(4):
        writer = _start(tmp_path / "tables", dull, f"w{attempt}", 1000, shared=False)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.013 * attempt)
        writer.kill()
        writer.communicate()
    found = TableStore(tmp_path / "tables").query("SELECT run_id, count(*) n FROM samples GROUP BY 1")
    assert set(found["n"].to_pylist()) == {10}
    assert found.num_rows >= 4


def test_a_writer_that_never_gets_its_turn_gives_up_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta, "LONGEST_PAUSE_S", 0)

    def beaten() -> None:
        raise delta.CommitFailedError

    with pytest.raises(TableError, match="samples"):
        delta.retried("samples", beaten)


def test_a_process_that_read_tables_ends_with_its_own_exit_code(where: Endpoint | Path, dull: str) -> None:
    reader = WRITER + "for _ in range(4): tables.load('samples'); tables.query('SELECT * FROM samples')"
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", reader, "a", "2", "own"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        process.communicate(_address(where) + "\n" + dull + "\n")
        assert process.returncode == 0
