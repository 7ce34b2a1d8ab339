"""The parent's side of measuring: start the program in its own session, follow it, leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from tilewatch.data_contracts.errors import ENVIRONMENT, TilewatchError

PROGRAM = Path(__file__).parent / "program" / "main.py"
DESCRIBE_TIMEOUT_S = 120.0
LOG_TAIL_LINES = 40
STOP_GRACE_S = 5.0
EXIT_STOPPED, EXIT_BUILD_CHANGED = 3, 4
"""As in ``program/main.py``, which runs in another interpreter."""

_SECRET_NAME = re.compile(r"SECRET|TOKEN(?!S|IZ)|PASSWORD|CREDENTIAL|ACCESS_KEY", re.IGNORECASE)
_OF_A_CAPTURE = ("plan.json", "stdout.log", "stderr.log", "samples.jsonl", "profiler", "log")


class MeasureError(TilewatchError):
    """Measuring cannot start; the message names the setting or the folder and what to do."""

    exit_code = ENVIRONMENT


@dataclass(frozen=True)
class Description:
    """What an interpreter would measure with, and on what. Sizes in bytes; unknown is None."""

    host: str
    device: str
    device_class: str
    cores: int
    last_level_cache_bytes: int
    governor: str | None
    components: Mapping[str, str]
    build_id: str
    method_version: int
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """State of a running process. ``waiting_for`` is the owner of the device while it is not ours."""

    done: int
    total: int
    elapsed_s: float
    waiting_for: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """How a process ended. Only ``complete`` and ``failed`` can have left a capture with a manifest.

    ``build_changed``: it found another build than that of its plan, and measured nothing.
    """

    status: Literal["complete", "failed", "killed", "timed_out", "build_changed"]
    capture_dir: Path
    reason: str | None
    log_tail: str
    has_manifest: bool


def describe(python: str, agent: str, variables: Mapping[str, str] | None = None) -> Description:
    """Ask ``python`` what it would measure with, under ``variables`` instead of this process's own.

    Raises MeasureError naming ``measure_python``.
    """
    command = [python, str(PROGRAM), "--describe", "--agent", agent]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=DESCRIBE_TIMEOUT_S,
            env=without_secrets(variables),
        )
    except OSError as error:
        raise MeasureError(
            f"measure_python: {python} cannot be started ({error.strerror}); set it to a Python ≥ 3.9 that "
            "has numpy and torch"
        ) from error
    except subprocess.TimeoutExpired as error:
        limit = f"{DESCRIBE_TIMEOUT_S:.0f} s"
        raise MeasureError(f"measure_python: {python} did not answer in {limit}") from error
    if answer.returncode:
        raise MeasureError(_why_not_described(python, answer.stderr))
    facts = json.loads(answer.stdout.splitlines()[-1])
    names = Description.__dataclass_fields__.keys() - {"facts"}
    rest = {name: value for name, value in facts.items() if name not in names}
    return Description(**{name: facts[name] for name in names}, facts=rest)


def measure_process(
    plan: Mapping[str, Any],
    capture_dir: Path,
    *,
    python: str,
    timeout_s: float,
    lock_fd: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    """Measure one process plan into ``capture_dir``; a capture that is there already is returned as it is.

    ``lock_fd`` is a descriptor that holds the plan's device lock already; without it the process takes the
    lock itself. ``timeout_s`` runs while the process holds the device; waiting for it does not count.
    ``variables`` are all that the process sees, this process's own where none are given. What an
    interrupted process left is removed first. Whatever ends this function, no process of its session survives
    it. Raises MeasureError where ``capture_dir`` holds something that is not a capture.
    """
    if (capture_dir / "manifest.json").is_file():
        return _finished(capture_dir, _log_tail(capture_dir, ()))
    _remove_partial(capture_dir)
    capture_dir.parent.mkdir(parents=True, exist_ok=True)
    plan_file = capture_dir.with_name(f"{capture_dir.name}.plan.json")
    plan_file.write_text(json.dumps(plan, ensure_ascii=False), encoding="utf-8")
    Path(plan["lock_path"]).parent.mkdir(parents=True, exist_ok=True)
    command = [python, str(PROGRAM), str(plan_file), str(capture_dir), "--parent", str(os.getpid())]
    if lock_fd is not None:
        command += ["--lock-fd", str(lock_fd)]
    try:
        inherited = () if lock_fd is None else (lock_fd,)
        with _session(command, inherited, without_secrets(variables)) as child:
            follower = _Follower(child, len(plan["points"]), timeout_s, on_progress)
            timed_out = not follower.follow()
        return _outcome(child.returncode, follower, capture_dir, timed_out)
    finally:
        plan_file.unlink(missing_ok=True)


class _Follower:
    """Reads the progress lines and the stderr of a child until both end or its time is up."""

    def __init__(
        self,
        child: subprocess.Popen[str],
        total: int,
        timeout_s: float,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._child = child
        self._timeout_s = timeout_s
        self._on_progress = on_progress or (lambda progress: None)
        self._total = total
        self._done = 0
        self._begun_s = time.monotonic()
        self._deadline_s: float | None = None
        self.ended: dict[str, Any] = {}
        self.errors: deque[str] = deque(maxlen=LOG_TAIL_LINES)

    def follow(self) -> bool:
        """True when the child ended by itself, False when its time was up."""
        with selectors.DefaultSelector() as selector:
            for stream in (self._child.stdout, self._child.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, _Lines(stream))
            while selector.get_map():
                if self._deadline_s is not None and time.monotonic() > self._deadline_s:
                    return False
                ready = selector.select(timeout=0.2)
                # A grandchild (a profiler, a compiler) may hold the streams open after the child is dead.
                if not ready and self._child.poll() is not None:
                    break
                for key, _ in ready:
                    lines, open_still = key.data.read()
                    for line in lines:
                        self._take(line) if key.fileobj is self._child.stdout else self.errors.append(line)
                    if not open_still:
                        selector.unregister(key.fileobj)
        self._child.wait()
        return True

    def _take(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            self.errors.append(line)  # whatever a start-up hook of the interpreter had to say
            return
        if event["event"] == "started":
            self._deadline_s = time.monotonic() + self._timeout_s
        elif event["event"] == "point":
            self._done = event["done"]
        elif event["event"] == "ended":
            self.ended = event
        elapsed_s = time.monotonic() - self._begun_s
        self._on_progress(Progress(self._done, self._total, elapsed_s, event.get("owner")))


class _Lines:
    """Whole lines out of a non-blocking stream."""

    def __init__(self, stream: IO[str]) -> None:
        self._descriptor = stream.fileno()
        self._rest = b""

    def read(self) -> tuple[list[str], bool]:
        """The lines that are complete by now, and whether the stream is still open."""
        piece = os.read(self._descriptor, 1 << 16)
        *whole, self._rest = (self._rest + piece).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole], bool(piece)


@contextlib.contextmanager
def _session(
    command: list[str], descriptors: tuple[int, ...], variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Run ``command`` in a session of its own; on leaving, whatever still runs in it is killed."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        start_new_session=True,
        pass_fds=descriptors,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def _outcome(code: int, follower: _Follower, capture_dir: Path, timed_out: bool) -> Outcome:
    tail = _log_tail(capture_dir, follower.errors)
    if (capture_dir / "manifest.json").is_file():
        return _finished(capture_dir, tail)
    reason = follower.ended.get("reason")
    if timed_out:
        limit = f"took longer than {follower._timeout_s:g} s"
        return Outcome("timed_out", capture_dir, limit, tail, False)
    if code < 0:
        return Outcome("killed", capture_dir, f"killed by {signal.Signals(-code).name}", tail, False)
    if code == EXIT_STOPPED:
        return Outcome("killed", capture_dir, f"stopped: {reason}", tail, False)
    status: Literal["build_changed", "failed"] = "build_changed" if code == EXIT_BUILD_CHANGED else "failed"
    return Outcome(status, capture_dir, reason or f"exit code {code}", tail, False)


def _finished(capture_dir: Path, tail: str) -> Outcome:
    capture = json.loads((capture_dir / "capture.json").read_text(encoding="utf-8"))
    return Outcome(capture["status"], capture_dir, capture["failure_reason"], tail, True)


def _log_tail(capture_dir: Path, errors: Iterable[str]) -> str:
    log = capture_dir / "stderr.log"
    written = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    return "\n".join([*errors, *written][-LOG_TAIL_LINES:])


def _remove_partial(capture_dir: Path) -> None:
    """Remove what an interrupted process left. Raises MeasureError for a folder that none of ours wrote."""
    if not capture_dir.exists():
        return
    known = {*_OF_A_CAPTURE, "points.jsonl", "environment.json", "capture.json", "manifest.json.part"}
    if strange := sorted(entry.name for entry in capture_dir.iterdir() if entry.name not in known):
        raise MeasureError(f"{capture_dir} is not a capture (it holds {strange[0]}); choose another folder")
    shutil.rmtree(capture_dir)


def without_secrets(variables: Mapping[str, str] | None) -> dict[str, str]:
    """``variables``, or this process's own, without what looks like a credential: nobody measured needs it.

    A number of tokens, as in SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK, is none.
    """
    given = os.environ if variables is None else variables
    return {name: value for name, value in given.items() if not _SECRET_NAME.search(name)}


def _why_not_described(python: str, stderr: str) -> str:
    # torch_npu writes an error code of its own below the exception.
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("[")]
    last = lines[-1] if lines else "no message"
    if missing := re.search(r"No module named '(torch_npu|torch|numpy)['.]", last):
        extra, needed = (
            ("npu", ", torch and torch_npu") if missing[1] == "torch_npu" else ("cpu", " and torch")
        )
        return (
            f"measure_python: {python} has no {missing[1]}; install tilewatch[{extra}] there, or set "
            f"TILEWATCH_MEASURE_PYTHON to an interpreter that has numpy{needed}"
        )
    return f"measure_python: {python} cannot run the measuring program: {last}"
