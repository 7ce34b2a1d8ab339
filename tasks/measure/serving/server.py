"""A server of a launch: its command, the wait until it is ready, what it says of itself, its profile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tilewatch.tasks.measure.serving.errors import LaunchError, Stage
from tilewatch.tasks.measure.serving.kept import Kept
from tilewatch.tasks.measure.serving.processes import LOOPBACK

REFERENCE = Path(__file__).parents[1] / "reference_server" / "main.py"
ANSWER_LIMIT_S = 5.0
INFO_LIMIT_S = 60.0
POLL_S = 0.1
LAST_LINES = 40


def command_of(words: list[str], values: Mapping[str, str]) -> list[str]:
    """``words`` with every ``{name}`` of ``values`` filled in."""
    filled = []
    for word in words:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)
        filled.append(word)
    return filled


def ended_words(code: int) -> str:
    """How a process ended, from its exit code."""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def last_lines(log: Path) -> list[str]:
    """The end of a log file."""
    if not log.is_file():
        return []
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]


class ServerOf:
    """The server under ``process`` on the loopback ``port``, asked as ``rules`` (of the plan) say."""

    def __init__(self, process: Kept, port: int, rules: Mapping[str, Any]) -> None:
        self.process = process
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"
        self._rules = rules
        self._http = httpx.Client(base_url=self.url, trust_env=False, timeout=ANSWER_LIMIT_S)

    def close(self) -> None:
        """Close the connections to it."""
        self._http.close()

    def refuse_dead(self, stage: Stage) -> None:
        """Raise LaunchError where the server has ended by itself."""
        if (code := self.process.poll()) is not None:
            raise LaunchError(stage, f"the server ended by itself: {ended_words(code)}")

    def wait_until_ready(self, limit_s: float) -> None:
        """Wait for the answer that means ready. Raises LaunchError when it ends, or the deadline passes."""
        rule = self._rules["ready"]
        deadline_s = min(float(rule["deadline_s"]), limit_s)
        deadline = time.monotonic() + deadline_s
        last = "it never answered"
        while time.monotonic() < deadline:
            self.refuse_dead("ready")
            try:
                status = self._http.get(rule["path"]).status_code
                if status == rule["status"]:
                    return
                last = f"it last answered {status}"
            except httpx.HTTPError as error:
                last = f"it last failed with {type(error).__name__}"
            time.sleep(POLL_S)
        raise LaunchError(
            "ready",
            f"not ready within {deadline_s:g} s: {rule['path']} is to answer {rule['status']}; {last}",
        )

    def info(self) -> dict[str, Any]:
        """What it says of itself; empty where it does not."""
        try:
            answer = self._http.get(self._rules["info_path"], timeout=INFO_LIMIT_S)
            told = answer.json() if answer.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}

    def start_profile(self, folder: Path) -> None:
        """Ask for a profile by stage into ``folder``. Raises LaunchError where it has no such path."""
        rule = self._rules["profile"]
        body = {"output_dir": str(folder), "num_steps": rule["steps"], "profile_by_stage": True}
        self._post(rule["start_path"], body, rule["deadline_s"])

    def stop_profile(self, folder: Path) -> None:
        """End the profile and wait for its files. Raises LaunchError where none comes before the deadline."""
        rule = self._rules["profile"]
        deadline = time.monotonic() + rule["deadline_s"]
        try:
            self._post(rule["stop_path"], {}, rule["deadline_s"])
        except LaunchError:
            # A profile of a number of steps may have ended by itself, which some servers call an error.
            self.refuse_dead("profile")
        sizes: dict[str, int] = {}
        while time.monotonic() < deadline:
            found = {str(path): path.stat().st_size for path in folder.rglob(rule["files"])}
            if found and found == sizes:
                return
            sizes = found
            self.refuse_dead("profile")
            time.sleep(0.5)
        raise LaunchError(
            "profile", f"no profile ({rule['files']}) was written within {rule['deadline_s']} s"
        )

    def _post(self, path: str, body: Mapping[str, Any], limit_s: float) -> None:
        try:
            answer = self._http.post(path, json=dict(body), timeout=limit_s)
        except httpx.HTTPError as error:
            self.refuse_dead("profile")
            raise LaunchError("profile", f"{path} failed: {type(error).__name__} {error}") from error
        if answer.status_code >= 400:
            raise LaunchError("profile", f"{path} answered {answer.status_code}: {answer.text[:200]}")
