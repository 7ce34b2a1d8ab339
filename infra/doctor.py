"""What is wrong with this host's settings and stores, and what to do about it."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.infra import exposure, probes
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.services import store
from tilewatch.infra.settings import PREFIX, Settings

Level = Literal["ok", "warn", "fail"]

PYTHON_TIMEOUT_S = 120
WARN_FREE_BYTES, FAIL_FREE_BYTES = 5 * 2**30, 2**30
# S3 refuses signatures that are more than 15 minutes off.
WARN_SKEW_S, FAIL_SKEW_S = 60, 900
# Names under the prefix that are not settings: where the file is, and what steers the tests.
_NO_SETTINGS = {PREFIX + name for name in ("CONFIG", "SHARED", "NO_SKIPS", "SOAK_EXPERIMENTS")}
_OWN_STORE_HINT = "Use another store, or the embedded one: unset s3_endpoint"
_PROBE_PYTHON = (
    "import sys; version = 'Python ' + sys.version.split()[0]\n"
    "assert sys.version_info >= (3, 9), version + ' is older than 3.9'\n"
    "import numpy, torch; print(version, 'numpy', numpy.__version__, 'torch', torch.__version__)"
)


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what was found and, unless it is ok, how to mend it."""

    name: str
    level: Level
    what: str
    fix: str = ""


def diagnose(settings: Settings) -> list[Finding]:
    """Look at everything; a failure ends what depends on it, not the rest. Never raises TilewatchError."""
    return [*_host(settings), *_exposure(settings), *_stores(settings)]


def _host(settings: Settings) -> Iterator[Finding]:
    yield _tried("settings", lambda: _folders(settings))
    yield _environment()
    yield _measure_python(settings)
    yield _free_disk(settings)


def _exposure(settings: Settings) -> Iterator[Finding]:
    """What strangers could reach: a warning each, since a lab may want it so."""
    for look in exposure.looks(settings):
        yield Finding(look.name, "warn" if look.fix else "ok", look.what, look.fix)


def _stores(settings: Settings) -> Iterator[Finding]:
    prefix = f".tilewatch/doctor/{secrets.token_hex(8)}"
    try:
        with store(settings) as endpoint:
            objects = ObjectStore(endpoint)
            kind = "embedded" if endpoint.data_folder else "external"
            yield Finding("store", "ok", f"{kind} store answers at {endpoint.url}, bucket {endpoint.bucket}")
            writes = _tried("credentials", lambda: _probed(probes.round_trip(objects, prefix), "may write"))
            yield writes
            if writes.level == "ok":
                yield from _abilities(endpoint, prefix)
                objects.delete_prefix(prefix)
    except TilewatchError as error:
        yield Finding("store", "fail", str(error), error.hint)


def _abilities(endpoint: Endpoint, prefix: str) -> Iterator[Finding]:
    for name, probe, good in (
        ("conditional writes", probes.create_only_race, "of several creators exactly one wins"),
        ("checksums", probes.bad_checksum, "a wrong checksum is refused"),
        ("multipart", probes.multipart, "uploads in parts arrive whole and create only"),
    ):
        yield _tried(name, partial(_ability, probe, endpoint, prefix, good))
    yield _tried("clock", lambda: _clock(endpoint))


def _tried(name: str, look: Callable[[], tuple[Level, str, str]]) -> Finding:
    try:
        return Finding(name, *look())
    except TilewatchError as error:
        return Finding(name, "fail", str(error), error.hint)


def _ability(
    probe: Callable[[Endpoint, str], str], endpoint: Endpoint, prefix: str, good: str
) -> tuple[Level, str, str]:
    return _probed(probe(endpoint, prefix), good)


def _probed(wrong: str, good: str) -> tuple[Level, str, str]:
    return ("fail", wrong, _OWN_STORE_HINT) if wrong else ("ok", good, "")


def _folders(settings: Settings) -> tuple[Level, str, str]:
    settings.prepare()
    return "ok", f"home {settings.home}, device locks in {settings.lock_folder}", ""


def _environment() -> Finding:
    known = _NO_SETTINGS | {PREFIX + name.upper() for name in Settings.model_fields}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        return Finding("environment", "warn", f"no setting is named {', '.join(unknown)}", "Correct or unset")
    return Finding("environment", "ok", f"every {PREFIX}* variable is a setting")


def _measure_python(settings: Settings) -> Finding:
    python = settings.measure_python
    fix = "Set measure_python to a Python >= 3.9 with numpy and torch, or install the extra cpu or npu"
    try:
        answer = subprocess.run(
            [str(python), "-c", _PROBE_PYTHON],
            capture_output=True,
            text=True,
            timeout=PYTHON_TIMEOUT_S,
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("measure_python", "fail", f"{python} does not run: {type(error).__name__}", fix)
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        return Finding("measure_python", "fail", f"{python} cannot measure: {reason}", fix)
    return Finding("measure_python", "ok", f"{python}: {answer.stdout.strip()}")


def _free_disk(settings: Settings) -> Finding:
    folder = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    free_bytes = shutil.disk_usage(folder).free
    level: Level = (
        "fail" if free_bytes < FAIL_FREE_BYTES else "warn" if free_bytes < WARN_FREE_BYTES else "ok"
    )
    fix = "" if level == "ok" else "Free space, or set TILEWATCH_HOME to a folder on a larger disk"
    return Finding("disk", level, f"{free_bytes / 2**30:.1f} GiB free under {folder}", fix)


def _level(value: float, warn_above: float, fail_above: float) -> Level:
    return "fail" if value > fail_above else "warn" if value > warn_above else "ok"


def _clock(endpoint: Endpoint) -> tuple[Level, str, str]:
    skew_s = probes.clock_skew_s(endpoint)
    level = _level(abs(skew_s), WARN_SKEW_S, FAIL_SKEW_S)
    fix = "" if level == "ok" else "Synchronise the clocks of this host and of the store"
    return level, f"the store's clock differs by {abs(skew_s):.0f} s", fix
