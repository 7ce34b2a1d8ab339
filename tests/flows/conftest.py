"""The command line as a user starts it, on a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson
import pytest

TILEWATCH = Path(sys.executable).parent / "tilewatch"
SMOKE = ("run", "A", "--preset", "smoke", "--seed", "7")


@dataclass
class Home:
    """One user's home folder and environment; ``run`` is that user typing a command."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str, code: int = 0, timeout: float = 600) -> str:
        """Run ``tilewatch words…`` to its end; fails where the exit code is another one. Returns stdout."""
        done = subprocess.run(
            [str(TILEWATCH), *words], env=self._env(), capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        self.stderr = done.stderr
        return done.stdout

    def start(self, *words: str, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start ``tilewatch words…`` in a session of its own."""
        return subprocess.Popen(
            [str(TILEWATCH), *words],
            env=self._env(),
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Answer of `tilewatch query --json`."""
        answer: list[dict[str, Any]] = orjson.loads(self.run("query", sql, "--json"))
        return answer

    def manifests(self) -> dict[Path, tuple[int, bytes]]:
        """Every manifest in the spool with its time of writing and its content."""
        found = (self.path / "spool").rglob("manifest.json")
        return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in found}

    def _env(self) -> dict[str, str]:
        own = {"TILEWATCH_HOME": str(self.path), "TILEWATCH_LOCK_FOLDER": str(self.path / "locks")}
        return {**os.environ, **own, **self.environment}


@pytest.fixture
def home(tmp_path: Path, prefect_server: str) -> Iterator[Home]:
    """An empty home; its store is stopped afterwards."""
    made = Home(tmp_path / "home", {"PREFECT_API_URL": prefect_server})
    yield made
    made.run("down")


@pytest.fixture(scope="session")
def archived(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Iterator[Home]:
    """A home whose archive holds one smoke run of experiment A for each of the builds base and new."""
    made = Home(tmp_path_factory.mktemp("archived") / "home", {"PREFECT_API_URL": prefect_server})
    made.run("up", "--store-only")
    for build in ("base", "new"):
        made.run(*SMOKE, "--build", build)
    yield made
    made.run("down")
