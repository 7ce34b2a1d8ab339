"""The store refuses, the clock jumps, the disk fills, a lock's owner dies: a run ends whole or goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.scene import Wire, lost_and_doubled, show, wait_for
from tests.flows.conftest import Home
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.tasks.measure.program import locks

pytestmark = pytest.mark.slow

SIMULATED = ("run", "A", "--preset", "smoke", "--agent", "simulated", "--arm", "standalone", "--seed", "7")
BUILD = "sim-cann8.5.0"
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def home_of(path: Path, store: Endpoint, prefect_server: str, url: str | None = None) -> Home:
    """A home whose archive is ``store``, reached by ``url``."""
    return Home(
        path,
        {
            "PREFECT_API_URL": prefect_server,
            "TILEWATCH_S3_ENDPOINT": url or store.url,
            "TILEWATCH_S3_BUCKET": store.bucket,
            "TILEWATCH_S3_ACCESS_KEY": store.access_key.get_secret_value(),
            "TILEWATCH_S3_SECRET_KEY": store.secret_key.get_secret_value(),
        },
    )


def test_a_store_that_is_slow_and_then_refuses_costs_time_and_nothing_else(
    tmp_path: Path, new_bucket: Callable[[], Endpoint], prefect_server: str
) -> None:
    store = new_bucket()
    wire = Wire(store.url)
    home = home_of(tmp_path / "home", store, prefect_server, wire.url)
    wire.delay_s = 0.01
    run = home.start(*SIMULATED)
    wait_for(lambda: any(ObjectStore(store).list("raw/A/")) or run.poll() is not None)
    wire.refuses = True
    time.sleep(8)
    wire.refuses = False
    begun = time.monotonic()
    said, _ = run.communicate(timeout=280)
    assert run.returncode == 0, said
    planned, lost, doubled = lost_and_doubled(home_of(tmp_path / "home", store, prefect_server), BUILD)
    show([("store slow, then refusing for 8 s", planned, lost, doubled, time.monotonic() - begun)])
    wire.close()
    assert wire.refused > 0 and planned > 0 and (lost, doubled) == (0, 0)


def test_a_clock_that_jumps_moves_no_measurement_and_loses_none(
    tmp_path: Path, new_bucket: Callable[[], Endpoint], prefect_server: str
) -> None:
    if FAKETIME is None:
        pytest.skip("needs libfaketime: apt-get install faketime")
    clock = tmp_path / "clock"
    clock.write_text("+0")
    python = tmp_path / "python"
    # The measuring program alone: under libfaketime 0.9.10 with a true monotonic clock time.sleep fails.
    python.write_text(
        f"#!/bin/sh\nexec env LD_PRELOAD={FAKETIME} FAKETIME_TIMESTAMP_FILE={clock} FAKETIME_NO_CACHE=1 "
        f'FAKETIME_DONT_FAKE_MONOTONIC=1 {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    home = home_of(tmp_path / "home", new_bucket(), prefect_server)
    jumping = Home(home.path, {**home.environment, "TILEWATCH_MEASURE_PYTHON": str(python)})
    words = ("--preset", "smoke", "--arm", "standalone", "--processes", "3", "--build", "jumped")
    run = jumping.start("run", "A", *words)
    wait_for(lambda: bool(home.manifests()) or run.poll() is not None)
    part = clock.with_suffix(".part")
    part.write_text("-600")
    part.replace(clock)
    said, _ = run.communicate(timeout=280)
    assert run.returncode == 0, said
    planned, lost, doubled = lost_and_doubled(home, "jumped")
    started = home.rows("SELECT min(started_ns) AS first, max(started_ns) AS last FROM captures")[0]
    longest = home.rows("SELECT max(duration_ns) AS ns FROM samples")[0]["ns"]
    show([("clock set back by 10 min", planned, lost, doubled, 0.0)])
    assert min(started.values()) < (time.time() - 500) * 1e9, "the clock did jump"
    assert longest is None or 0 < longest < 60e9
    assert planned > 0 and (lost, doubled) == (0, 0)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of ``size`` at ``folder``."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stops_a_run_with_one_sentence_and_room_lets_it_go_on(
    tmp_path: Path, new_bucket: Callable[[], Endpoint], prefect_server: str
) -> None:
    with small_disk(tmp_path / "disk", "8m"):
        home = home_of(tmp_path / "disk" / "home", new_bucket(), prefect_server)
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(8 * 2**20 - 150_000))
        home.run(*SIMULATED, code=3)
        assert "no space left" in home.stderr
        kept = home.manifests()
        ballast.unlink()
        begun = time.monotonic()
        (run_id,) = [p.parent.name for p in (home.path / "spool").glob("*/run.json")]
        home.run("run", "--resume", run_id)
        after = home.manifests()
        planned, lost, doubled = lost_and_doubled(home, BUILD)
        lost += sum(after.get(path) != kept[path] for path in kept)
        show([(f"disk full after {len(kept)} captures", planned, lost, doubled, time.monotonic() - begun)])
    assert 0 < len(kept) < planned and (lost, doubled) == (0, 0)


def test_the_lock_of_an_owner_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    lock = tmp_path / "device.lock"
    code = (
        "import sys, time; from pathlib import Path; from tilewatch.tasks.measure.program import locks\n"
        "with locks.held(Path(sys.argv[1]), 'a sweep', lambda owner: None):\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout and owner.stdout.readline() == "held\n"
    assert locks.is_held(lock)
    os.kill(owner.pid, signal.SIGKILL)
    begun = time.monotonic()
    with locks.held(lock, "the next one", lambda owner: None):
        waited_s = time.monotonic() - begun
    owner.wait()
    show([("lock owner killed", 1, 0, 0, waited_s)])
    assert not locks.is_held(lock)
