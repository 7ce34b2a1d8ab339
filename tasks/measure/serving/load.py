"""Running a load client against a ready server: the built-in one, or SGLang's where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewatch.tasks.measure.serving.errors import LaunchError, Stage
from tilewatch.tasks.measure.serving.kept import StartError, kept
from tilewatch.tasks.measure.serving.metrics import VERSION
from tilewatch.tasks.measure.serving.server import ServerOf, command_of, ended_words, last_lines
from tilewatch.tasks.measure.serving.word_tokenizer import write_tokenizer
from tilewatch.tasks.plan.serving_plan import Client

BUILTIN = Client("builtin", VERSION, sys.executable)
CLIENT_GRACE_S = 1.0
_ASK_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"
PACKAGES = Path(__file__).parents[4]
"""Folder on the path of Python under which the client finds tilewatch."""


@dataclass(frozen=True)
class Loader:
    """What runs loads in one launch: the client, its load, and where it writes."""

    client: Client
    rules: Mapping[str, Any]
    load: Mapping[str, Any]
    folder: Path
    environment: Mapping[str, str]
    mark: str

    def warm_up(self, server: ServerOf, seed: int, limit_s: float) -> None:
        """Send the warm-up requests one after the other, by the built-in client; nothing of them is kept."""
        if not self.load["warm_up_requests"]:
            return
        output = self.folder / "warm_up.jsonl"
        words = self._builtin(server, output, seed, self.load["warm_up_requests"])
        self._run("warm_up", server, [*words, "--warm-up"], output, 1, limit_s)
        output.unlink(missing_ok=True)

    def repeat(self, server: ServerOf, index: int, seed: int, limit_s: float) -> None:
        """Run the load once more; appends line ``index`` (from 0) to ``results.jsonl``."""
        output = self.folder / "results.jsonl"
        if self.client.name == "builtin":
            words = self._builtin(server, output, seed, None)
        else:
            words = self._sglang(server, output, seed)
        self._run("load", server, words, output, index + 1, limit_s)

    def profiled(self, server: ServerOf, seed: int, prompts: int, limit_s: float) -> None:
        """Run ``prompts`` requests of the load by the built-in client, while the server profiles itself."""
        output = self.folder / "results.jsonl"
        self._run("profile", server, self._builtin(server, output, seed, prompts), output, 1, limit_s)

    def _builtin(self, server: ServerOf, output: Path, seed: int, prompts: int | None) -> list[str]:
        words = [
            sys.executable,
            "-m",
            "tilewatch.tasks.measure.serving.client",
            str(self.folder / "load.json"),
        ]
        words += ["--base-url", server.url, "--output", str(output), "--seed", str(seed)]
        return words if prompts is None else [*words, "--prompts", str(prompts)]

    def _sglang(self, server: ServerOf, output: Path, seed: int) -> list[str]:
        """SGLang's client as the plan writes it; a flag whose value is unbounded is left out."""
        tokenizer = self.rules["tokenizer"] or str(
            write_tokenizer(self.folder.with_name(f".{self.folder.name}.tokenizer"), self.load["vocabulary"])
        )
        values = {
            "client_python": self.client.python, "base_url": server.url, "output": str(output),
            "seed": str(seed % 2**32), "tokenizer": tokenizer,
        }  # fmt: skip
        values |= {name: str(value) for name, value in self.load.items() if value is not None}
        words: list[str] = []
        for word in command_of(list(self.rules["command"]), values):
            if "{" in word:
                words.pop()
            else:
                words.append(word)
        return words

    def _run(
        self, stage: Stage, server: ServerOf, words: list[str], output: Path, lines: int, limit_s: float
    ) -> None:
        """Run the client to its end. Raises LaunchError: client, server or request failed, or time is up."""
        extra = {"PYTHONPATH": str(PACKAGES)} if words[0] == sys.executable else self.rules["environment"]
        logs = self.folder / "stdout.log", self.folder / "stderr.log"
        deadline = time.monotonic() + limit_s
        # Another mark than the server's: what is left of a client is ended while the server lives on.
        mark = f"{self.mark}-client"
        try:
            with kept(words, {**self.environment, **extra}, mark, *logs, CLIENT_GRACE_S) as client:
                while (code := client.wait(0.2)) is None:
                    server.refuse_dead(stage)
                    if time.monotonic() > deadline:
                        raise LaunchError(
                            stage, f"the load took longer than the {limit_s:.0f} s that are left"
                        )
        except StartError as error:
            raise LaunchError(stage, f"the client: {error}") from error
        server.refuse_dead(stage)
        if code:
            said = (last_lines(self.folder / "stderr.log") or ["no message"])[-1]
            raise LaunchError(stage, f"the client ended with {ended_words(code)}: {said}")
        _refuse_failed_requests(stage, output, lines)


def _refuse_failed_requests(stage: Stage, output: Path, lines: int) -> None:
    """A load of which a request failed is another load. Raises LaunchError."""
    found = output.read_text(encoding="utf-8").splitlines() if output.is_file() else []
    if len(found) != lines:
        raise LaunchError(stage, f"the client left {len(found)} results instead of {lines}")
    errors = json.loads(found[-1]).get("errors") or []
    if failed := [f"request {index}: {error}" for index, error in enumerate(errors) if error]:
        raise LaunchError(stage, f"{len(failed)} of {len(errors)} requests failed; {failed[0]}")


def sglang_client(pythons: list[str]) -> Client | None:
    """SGLang's client of the first of ``pythons`` that has it; None where none does."""
    for python in pythons:
        try:
            done = subprocess.run([python, "-c", _ASK_VERSION], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return Client("sglang", done.stdout.strip(), python)
    return None
