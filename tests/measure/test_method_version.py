"""A change of the measuring program asks for a decision: do its numbers still mean the same?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tilewatch.tasks.measure.method import METHOD_VERSION, default_method, method_hash
from tilewatch.tasks.measure.run import PROGRAM

DECISION = Path(__file__).with_name("method_version.json")


def program_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(PROGRAM.parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def test_a_changed_program_has_a_decision_about_its_method_version() -> None:
    decided = json.loads(DECISION.read_text())
    now = {"method_version": METHOD_VERSION, "program": program_hash()}
    assert decided == now, (
        "The measuring program differs from the one that METHOD_VERSION was decided for. If a sample now "
        "means something else (timer, warm-up, batch, cache, order, what is inside the timed call), raise "
        "METHOD_VERSION in tasks/measure/program/method_version.py and in tasks/measure/method.py: older "
        "numbers are then never compared with newer ones. Either way write the decision into "
        f"{DECISION.name}: {json.dumps(now)}"
    )


def test_program_and_parent_agree_on_the_method_version(program: Path) -> None:
    import method_version  # type: ignore[import-not-found]

    assert method_version.METHOD_VERSION == METHOD_VERSION == default_method("cpu")["method_version"]


def test_another_method_has_another_hash() -> None:
    method = default_method("cpu")
    assert len(method_hash(method)) == 16
    assert method_hash(method | {"cache": "warm"}) != method_hash(method)
    assert method_hash(dict(reversed(method.items()))) == method_hash(method)
