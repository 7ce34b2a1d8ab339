"""What a host needs to measure on an NPU: what is there, missing or wrong, and how to mend each."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewatch.infra.doctor import Finding
from tilewatch.infra.settings import Settings
from tilewatch.tasks.builds.packages import mixes, release_text
from tilewatch.tasks.measure.program import locks
from tilewatch.tasks.measure.run import MeasureError, describe

PYTHON_TIMEOUT_S = 120
NPU_SMI_TIMEOUT_S = 20
SET_ENV = "source <CANN>/set_env.sh before starting tilewatch, or install CANN"
DEVICES = Path("/dev")
MODULE_LEVELS = re.compile(r"[A-Z]+=[0-4](:[A-Z]+=[0-4])*")
"""One unknown or lower-case name, or another separator, silently voids the whole variable."""

_PROBE = """
import ctypes, importlib.metadata as m, importlib.util as u, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
def load(name):
    try: ctypes.CDLL(name); return None
    except OSError as error: return str(error)
names = ("torch", "torch_npu", "numpy")
print(json.dumps({"python": sys.version.split()[0], "packages": {n: version(n) for n in names},
                  "libraries": {n: load(n) for n in ("libascendcl.so", "libopapi.so")}}))
"""


def diagnose(settings: Settings) -> list[Finding]:
    """Look at everything that the npu agent uses. Never raises; what depends on a failure is not tried."""
    facts = _facts(settings)
    findings = [*_python(settings, facts), *_cann(facts), *_device(), _msprof(), *_switches(os.environ)]
    findings.append(_lock(settings))
    if all(f.level != "fail" for f in findings):
        findings.append(_describes(settings))
    return findings


def _facts(settings: Settings) -> dict[str, Any] | None:
    """What the measuring interpreter says of its packages and of CANN's libraries; None without one."""
    try:
        answer = subprocess.run(
            [str(settings.measure_python), "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=PYTHON_TIMEOUT_S,
        )
        facts: dict[str, Any] = json.loads(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return facts


def _python(settings: Settings, facts: Mapping[str, Any] | None) -> Iterator[Finding]:
    name, where = "measure_python", settings.measure_python
    if facts is None:
        yield Finding(name, "fail", f"{where} does not run", "Set TILEWATCH_MEASURE_PYTHON to a Python ≥ 3.9")
        return
    yield Finding(name, "ok", f"{where} is Python {facts['python']}")
    for package, version in facts["packages"].items():
        if version is None:
            fix = f"pip install {package} there, or set TILEWATCH_MEASURE_PYTHON to another interpreter"
            yield Finding(package, "fail", f"{where} has no {package}", fix)
        else:
            yield Finding(package, "ok", f"{package} {version}")


def _cann(facts: Mapping[str, Any] | None) -> Iterator[Finding]:
    for library, error in (facts or {}).get("libraries", {}).items():
        if error is None:
            yield Finding(library, "ok", "can be loaded")
        else:
            yield Finding(library, "fail", f"cannot be loaded: {error}", SET_ENV)
    home = os.environ.get("ASCEND_HOME_PATH")
    if home is None:
        yield Finding("ASCEND_HOME_PATH", "warn", "not set: the build has no version files of CANN", SET_ENV)
    elif not Path(home).is_dir():
        yield Finding("ASCEND_HOME_PATH", "fail", f"{home} is not a folder", SET_ENV)
    else:
        yield Finding("ASCEND_HOME_PATH", "ok", home)


def _device() -> Iterator[Finding]:
    nodes = sorted(DEVICES.glob("davinci[0-9]*"))
    if not nodes:
        fix = "Install driver and firmware; in a container pass --device /dev/davinci0 and davinci_manager"
        yield Finding("device", "warn", f"no {DEVICES}/davinci* on this host", fix)
    elif closed := [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]:
        fix = "Add the user to the group of the device, usually HwHiAiUser, and log in again"
        yield Finding("device", "fail", f"no right to use {closed[0]}", fix)
    else:
        yield Finding("device", "ok", f"{len(nodes)} devices, {nodes[0]} can be opened")
    yield _tenants()


def _tenants() -> Finding:
    """Whether npu-smi answers. Who is on the device is asked again by every measuring process."""
    command = shutil.which("npu-smi")
    if command is None:
        fix = "Put the driver's tools on the PATH: usually /usr/local/bin or /usr/local/sbin"
        return Finding("npu-smi", "warn", "not on the PATH: other processes cannot be seen", fix)
    try:
        page = subprocess.run([command, "info"], capture_output=True, text=True, timeout=NPU_SMI_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("npu-smi", "fail", f"does not answer: {error}", "Look at the driver's log with dmesg")
    if page.returncode:
        last = (page.stderr or page.stdout).strip().splitlines()[-1:] or ["no message"]
        return Finding("npu-smi", "fail", f"exit {page.returncode}: {last[0]}", "Is the driver loaded?")
    running = re.findall(r"^\|\s*\d+\s+\d+\s*\|\s*(\d+)\s*\|\s*(\S*)", page.stdout, re.MULTILINE)
    if running:
        who = ", ".join(f"pid {pid} ({name})" for pid, name in running)
        return Finding("npu-smi", "warn", f"in use by {who}", "Measure when they are done, or stop them")
    return Finding("npu-smi", "ok", "answers, and lists no process on a device")


def _msprof() -> Finding:
    found = shutil.which("msprof")
    if found is None:
        fix = "source set_env.sh, or put <CANN>/tools/profiler/bin on the PATH"
        return Finding("msprof", "fail", "not on the PATH: the profiler would leave no kernels", fix)
    return Finding("msprof", "ok", found)


def _switches(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that change what is measured or void the logs."""
    levels = environment.get("ASCEND_MODULE_LOG_LEVEL")
    if levels and not MODULE_LEVELS.fullmatch(levels):
        fix = "Write MODULE=LEVEL joined by ':', names in capitals; tilewatch sets it itself"
        what = f"{levels!r}: one bad entry voids all of it"
        yield Finding("ASCEND_MODULE_LOG_LEVEL", "warn", what, fix)
    for name, bad, what in (
        (
            "ASCEND_LAUNCH_BLOCKING",
            "1",
            "every call waits for the device, as serving does not",
        ),
        ("ASCEND_SLOG_PRINT_TO_STDOUT", "1", "logs go to the screen instead of files"),
        ("TASK_QUEUE_ENABLE", "0", "the task queue is off, which serving leaves on"),
    ):
        if environment.get(name) == bad:
            yield Finding(name, "warn", f"{name}={bad}: {what}", f"unset {name}")
    if environment.get("LD_PRELOAD"):
        what = "operators are looked up in preloaded libraries first"
        yield Finding("LD_PRELOAD", "warn", what, "unset LD_PRELOAD")


def _lock(settings: Settings) -> Finding:
    """Whether a sweep holds a device of this host."""
    try:
        held = [lock for lock in sorted(settings.lock_folder.glob("*npu*.lock")) if locks.is_held(lock)]
    except locks.PlantedError as error:
        return Finding("device lock", "fail", f"{error.filename}: {error.strerror}", "Remove it")
    if not held:
        return Finding("device lock", "ok", f"free, in {settings.lock_folder}")
    owner = locks.owner_of(held[0]) or {}
    what = f"{held[0].name} is held by pid {owner.get('pid', 'unknown')} for {owner.get('plan', 'something')}"
    return Finding("device lock", "warn", what, "A sweep waits its turn; nothing needs to be done")


def _describes(settings: Settings) -> Finding:
    try:
        found = describe(str(settings.measure_python), "npu")
    except MeasureError as error:
        return Finding("npu agent", "fail", str(error), "See the checks above")
    cann = release_text(found.components) or "unknown"
    what = f"{found.device_class}, {found.cores} AI Cores in force, CANN {cann}, build {found.build_id}"
    if found.facts.get("evidence") != "measured":
        return Finding("npu agent", "warn", f"{what}: a stand-in, its numbers are simulated", SET_ENV)
    if mixed := mixes(found.components):
        fix = "Where the mix is meant, nothing needs to be done"
        return Finding("npu agent", "warn", f"{what}: {'; '.join(mixed)}", fix)
    return Finding("npu agent", "ok", what)
