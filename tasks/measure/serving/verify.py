"""Which arm a server really runs: its own words, its environment, its weights and its log against the plan.

Nothing is loaded before every check holds, so that no number stands under a wrong label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewatch.tasks.measure.serving.keeper import name_of
from tilewatch.tasks.measure.serving.processes import environment_of, listeners, tree

FORMATS = {2: "ND", 29: "FRACTAL_NZ"}
"""Names of the NPU format numbers that a weight may have."""

UNSAID = "(not said)"
UNSET = "(not set)"


@dataclass(frozen=True)
class Check:
    """One thing that proves the arm: ``expected`` against ``found``, and where it was read."""

    what: str
    expected: str
    found: str
    source: str
    ok: bool

    @property
    def sentence(self) -> str:
        """The check in words."""
        verdict = "as expected" if self.ok else f"expected {self.expected}"
        return f"{self.what}: {self.found}, {verdict} ({self.source})"


def verify(
    expect: Mapping[str, Any], *, arm: str, info: Mapping[str, Any], port: int, pid: int, log: Path
) -> list[Check]:
    """Every check of ``expect`` for the server of process ``pid`` that should listen on ``port``."""
    found = [_listener(port, pid)]
    wanted = {**({"arm": arm} if "arm" in info else {}), **expect["info"]}
    found += [_told(name, value, info) for name, value in wanted.items()]
    found += _environment(expect["environment"], port, pid)
    if expect["weight_format"] is not None:
        said = weight_format(info)
        found.append(_check("weight format", expect["weight_format"], said or UNSAID, "server info"))
    return [*found, *_log(expect, log)]


def document(checks: list[Check]) -> dict[str, Any]:
    """The checks as they stand in ``launch.json``."""
    return {"proved": bool(checks) and all(c.ok for c in checks), "checks": [asdict(c) for c in checks]}


def weight_format(info: Mapping[str, Any]) -> str | None:
    """FRACTAL_NZ, ND or mixed, over the linears that the arm may change; None where the server is silent."""
    formats = info.get("weight_formats")
    if not isinstance(formats, dict) or not formats:
        return None
    names = {FORMATS.get(number, f"format {number}") for number in formats.values()}
    return names.pop() if len(names) == 1 else "mixed"


def _check(what: str, expected: object, found: object, source: str) -> Check:
    return Check(what, str(expected), str(found), source, str(expected) == str(found))


def _listener(port: int, pid: int) -> Check:
    """The port belongs to this launch: a health check may be answered by somebody else's server."""
    owners = listeners(port)
    ok = bool(owners) and owners <= set(tree(pid))
    named = ", ".join(f"{name_of(owner)} (pid {owner})" for owner in sorted(owners)) or "nobody"
    return Check(f"listens on port {port}", f"the server of this launch (pid {pid})", named, "/proc", ok)


def _told(name: str, expected: object, info: Mapping[str, Any]) -> Check:
    value: Any = info
    for part in name.split("."):
        value = value.get(part, UNSAID) if isinstance(value, dict) else UNSAID
    return _check(name, expected, value, "server info")


def _environment(expected: Mapping[str, str | None], port: int, pid: int) -> Iterator[Check]:
    """The environment of the process that answers, not of the one that was started."""
    answering = sorted(listeners(port) & set(tree(pid)))
    environment = environment_of(answering[0] if answering else pid)
    for name, value in expected.items():
        yield _check(name, UNSET if value is None else value, environment.get(name, UNSET), "/proc environ")


def _log(expect: Mapping[str, Any], log: Path) -> Iterator[Check]:
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    for wanted, patterns in ((True, expect["log"]), (False, expect["log_absent"])):
        for pattern in patterns:
            line = next((line for line in text.splitlines() if re.search(pattern, line)), None)
            expected = "a line" if wanted else "no line"
            yield Check(
                f"log line {pattern!r}", expected, line or "no line", log.name, (line is not None) == wanted
            )
