"""Runs one command and lets nothing of it survive: ``python keeper.py STDOUT STDERR GRACE_S -- COMMAND…``.

The keeper adopts every orphan of the command (PR_SET_CHILD_SUBREAPER), so that even what left the process
group is found as its descendant. It ends all of them when a line comes on stdin (``stop``), when stdin ends
because the parent is dead, however it died, or on SIGTERM. On stdout it says, one JSON object a line:
``started`` or ``refused``, ``ended`` with the exit code of the command, ``stopped`` with what was killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
KILL_LIMIT_S = 10.0
ORPHANED_GRACE_S = 2.0


def main(arguments: list[str]) -> int:
    """Keep one command; exit code 0 when nothing is left of it, 1 where something would not die."""
    stdout, stderr, grace_s = arguments[:3]
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    with Path(stdout).open("ab") as out, Path(stderr).open("ab") as err:
        try:
            child = subprocess.Popen(
                arguments[4:],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        except OSError as error:
            say("refused", reason=f"{arguments[4]} cannot be started: {error.strerror}")
            return 0
    say("started", pid=child.pid)
    told = watch(child, asked)
    return end(child, float(grace_s) if told else min(float(grace_s), ORPHANED_GRACE_S))


def watch(child: subprocess.Popen[bytes], asked: list[int]) -> bool:
    """Wait until the end is asked for; says when the command ended by itself. False: the parent is dead."""
    said = False
    while not asked:
        reap(child)
        if not said and child.returncode is not None:
            say("ended", code=child.returncode)
            said = True
        if select.select([0], [], [], POLL_S)[0]:
            return bool(os.read(0, 4096))
    return True


def end(child: subprocess.Popen[bytes], grace_s: float) -> int:
    """SIGTERM to the command, SIGKILL to whatever is still there after the grace."""
    deadline = time.monotonic() + grace_s
    reap(child)
    if child.returncode is None:
        os.kill(child.pid, signal.SIGTERM)
    while child.returncode is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
        reap(child)
    killed = {}
    deadline = time.monotonic() + KILL_LIMIT_S
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in left:
            killed[pid] = {"pid": pid, "name": name_of(pid)}
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(POLL_S)
        reap(child)
    say("stopped", code=child.returncode, killed=list(killed.values()), left=left)
    return 1 if left else 0


def reap(child: subprocess.Popen[bytes]) -> None:
    """Take the exit status of everything that has died: the command's own is kept, those of orphans not."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)


def descendants(root: int) -> list[int]:
    """Living processes below ``root``, from /proc."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            parents[int(entry.name)] = (int(parent), state)
    found, edge = [], [root]
    while edge:
        edge = [pid for pid, (parent, _) in parents.items() if parent in edge]
        found += [pid for pid in edge if parents[pid][1] != "Z"]
    return found


def name_of(pid: int) -> str:
    """The command's name of a process, or a blank where it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def say(event: str, **facts: Any) -> None:
    """Write one event; a dead parent hears nothing."""
    try:
        os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
