"""The measuring program: ``python main.py PLAN.json CAPTURE_DIR``, or ``--describe --agent NAME``.

It runs in the interpreter under test (Python 3.9 or newer with torch and numpy), reads one plan and leaves
one capture folder. Its stdout carries one JSON object a line: ``waiting``, ``started``, ``point``, ``ended``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from capture_files import CaptureError
from guard import Guard, Stopped
from locks import held, inherited
from method_version import METHOD_VERSION
from plan_file import Plan, PlanError, read_plan
from process import BuildChanged, DeviceOccupied, Process, prepare_environment
from registry import AGENTS, backend_of

EXIT_COMPLETE = 0
EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_STOPPED = 3
EXIT_BUILD_CHANGED = 4


class Teller:
    """Writes progress lines to what was stdout at the start, whatever stdout becomes."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")

    def __call__(self, event: str, **facts: Any) -> None:
        """Write one event."""
        self._stream.write(json.dumps({"event": event, **facts}) + "\n")
        self._stream.flush()

    def waiting(self, owner: Optional[Dict[str, Any]]) -> None:
        """Say, to the parent and to a person, who holds the device."""
        known = owner or {}
        who = f"pid {known.get('pid', 'unknown')} measures {known.get('plan', 'something')}"
        print(f"waiting for the device: {who}", file=sys.stderr, flush=True)
        self("waiting", owner=known)


def main(arguments: List[str]) -> int:
    """Run the program and return its exit code; see the EXIT_ constants."""
    options = _parse(arguments)
    if options.describe:
        print(json.dumps(_description(options.agent)))
        return EXIT_COMPLETE
    tell = Teller()
    try:
        guard = Guard(options.parent or os.getppid())
        plan = read_plan(options.plan)
        with _locked(plan, options.lock_fd, tell):
            reason = Process(plan, options.capture, guard, tell).run()
    except Stopped as stopped:
        tell("ended", status="stopped", reason=str(stopped))
        return EXIT_STOPPED
    except BuildChanged as changed:
        tell("ended", status="build_changed", reason=str(changed))
        return EXIT_BUILD_CHANGED
    except (PlanError, CaptureError, DeviceOccupied, OSError, ValueError, ImportError) as error:
        tell("ended", status="refused", reason=str(error))
        return EXIT_REFUSED
    tell("ended", status="complete" if reason is None else "failed", reason=reason)
    return EXIT_COMPLETE if reason is None else EXIT_FAILED


@contextmanager
def _locked(plan: Plan, lock_fd: Optional[int], tell: Teller) -> Iterator[None]:
    """The device lock, taken here, or already held by the sweep that started this process."""
    lock = Path(plan["lock_path"])
    if lock_fd is not None:
        inherited(lock, lock_fd)
        yield
        return
    with held(lock, f"{plan['run_id']} {plan['experiment']} {plan['arm']}", tell.waiting):
        yield


def _parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure one process plan, or describe this machine.")
    parser.add_argument("plan", nargs="?", type=Path, help="plan file of one process")
    parser.add_argument("capture", nargs="?", type=Path, help="folder to create")
    parser.add_argument("--parent", type=int, help="process whose death ends this one (default: the parent)")
    parser.add_argument("--lock-fd", type=int, help="inherited descriptor that holds the device lock")
    parser.add_argument("--describe", action="store_true", help="print device and build as JSON and exit")
    parser.add_argument("--agent", choices=AGENTS, default="cpu", help="agent to describe")
    options = parser.parse_args(arguments)
    if not options.describe and (options.plan is None or options.capture is None):
        parser.error("PLAN.json and CAPTURE_DIR are needed")
    return options


def _description(agent: str) -> Dict[str, Any]:
    backend = backend_of(agent)
    prepare_environment({}, 1, backend.variables("timing", None))
    import build

    components = backend.components()
    return {
        **backend.device(),
        "components": components,
        "build_id": build.build_id(components),
        "method_version": METHOD_VERSION,
        "evidence": backend.evidence(),
    }


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # everything is durable; torch needs most of a second to take itself apart
