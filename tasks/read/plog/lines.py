"""The grammar of one plog line: header, source place, and the tail shapes of every module and era.

Format: the line prefix of CANN's logger (``"[%s] %s(%d,%s):%s "`` then ``"[%s:%d]"``) and the tail of each
module as seen in logs of 2020–2026. A physical line holds at most 1022 bytes and its newline; longer messages
are cut without a mark. Lines without a prefix continue the message before them in the same file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

CUT_LENGTH_BYTES = 1022
# Damaged lines have numbers of any length; what exceeds 64 bits is no number of a log.
NUMBER = r"(\d{1,18})"
KEY = r"(\d{1,20})"

_PREFIX = (
    rb"(?:(?P<grep_path>[^\s:\[\]]+):(?P<grep_line>\d+):)?"  # people paste the output of grep -rn
    rb"(?:\[\d+(?:,\d+)+\] ?)?"  # tag of the device-side daemon
    rb"\[(?P<level>[A-Z]+|\d+)\] (?P<module>\w+)\((?P<pid>\d{1,18}), ?(?P<process>[^\n]{0,64}?)\): ?"
)
HEADER = re.compile(
    rb"(" + re.sub(rb"\?P<\w+>", rb"?:", _PREFIX) + rb")"
    rb"(\d{4}-\d\d-\d\d[- ]\d\d:\d\d:\d\d)\.(\d{3})\.(\d{3}) "
    rb"(?:\[[a-z]+:\w+\] )*"
    rb"(?:\[([^\]\n]*:\d+)\]|(?=\[ascend\]\[curpid: ?\d+, ?\d+\]\[drv\]))"  # the driver's own form
)
LOOKS_LIKE_HEADER = re.compile(rb"(?:[^\s:\[\]]+:\d+:)?(?:\[\d+(?:,\d+)+\] ?)?\[(?:[A-Z]+|\d+)\] \w+\(\d+,")

_OP_NAME = r"(?:errno\[\d+\] )?OpName:\[(?P<name>[^\]]*)\] ?"
# Shapes after ``[file:line]``, most specific first: (name, pattern). All modules share them; the name tells
# which one a line has, so that a new shape of a known module shows up in a census.
_SHAPES = (
    ("op", rf"\[(?P<sub>\w+)\]\[(?P<func>[^\]\n]*)\]\[(?P<tid>\d{{1,18}})\] ?(?:{_OP_NAME})?"),
    ("driver", r"\[ascend\]\[curpid: ?\d+, ?(?P<tid>\d{1,18})\]\[drv\]\[\w+\]\[(?P<func>[^\]\s]*)[^\]\n]*\]"),
    ("buffer", r"\[bufmng\] \[(?P<func>[^\]\n]*)\] ?"),
    ("framework", r"\[(?P<sub>TF_ADAPTER)\] \[[^\]\n]*:\d+\] ?"),
    ("tune", r"\[(?P<sub>CANNKB)\]\[Tid:(?P<tid>\d{1,18})\]"),
    ("hccl", r" \[(?P<tid>\d{1,18})\]\[[^\]\n]*\]\[(?P<func>[^\]\n]*)\] ?"),
    ("function_tid", r"\[(?P<func>[^\]\n]*)\]\[tid:(?P<tid>\d{1,18})\] ?"),
    ("tid", r" ?\[tid: ?(?P<tid>\d{1,18})\](?:>>>)? ?"),
    ("paren_tid", r" ?(?:>>> )?\(tid:(?P<tid>\d{1,18})\) ?"),
    ("call", r"(?:\[status:\w+\])? ?(?P<tid>\d{1,18}) (?:\[\w+\] )?(?P<func>~?[\w:~]+?): ?(?!:)"),
    ("bare_call", r" ?(?P<tid>\d{1,18}) (?P<func>\w+) "),
    ("function", r"\[(?P<func>[^\]\n]*)\] ?"),
    ("plain", r""),
)


@dataclass(frozen=True, slots=True)
class _Tail:
    """One shape and the numbers of its groups; 0 where it has no such group."""

    name: str
    pattern: re.Pattern[str]
    tid: int
    func: int
    sub: int
    op_name: int


def _compiled(name: str, text: str) -> _Tail:
    pattern = re.compile(text)
    return _Tail(
        name, pattern, *(pattern.groupindex.get(group, 0) for group in ("tid", "func", "sub", "name"))
    )


_TAILS = tuple(_compiled(name, text) for name, text in _SHAPES)
_BY_MODULE = {
    "OP": ("op",),
    "RUNTIME": ("call",),
    "GE": ("call",),
    "ASCENDCL": ("call",),
    "IDEDD": ("tid",),
    "ASCENDCKERNEL": ("function",),
}
_MODULE_TAILS = {
    module: (*(t for t in _TAILS if t.name in names), *_TAILS) for module, names in _BY_MODULE.items()
}


@dataclass(slots=True)
class LogLine:
    """One line that starts a message. ``logged_ns`` is the host's local wall time read as if it were UTC.

    ``pid`` is the one in the line, never the one in the file's name: a forked child may write into its
    parent's file. ``cut`` is True where the line has the length at which the logger cuts.
    """

    prefix: Prefix
    module: str
    pid: int
    logged_ns: int
    shape: str
    tid: int | None
    function: str | None
    submodule: str | None
    op_name: str | None
    text: str
    cut: bool
    place: bytes


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands before the time: the same for most lines of a process, so it is read once."""

    level: str
    module: str
    pid: int
    process: str
    grep_place: str | None
    level_at: int


def parse_line(line: bytes, header: re.Match[bytes] | None = None) -> LogLine | None:
    """Parse one physical line; None where it has no header (a continuation, or no plog at all).

    ``header`` is a match of HEADER for it, where the caller has one.
    """
    header = header or HEADER.match(line)
    if header is None:
        return None
    line = line.rstrip(b"\r\n")
    before, second, milli, micro, place = header.groups()
    prefix = _read_prefix(before)
    rest = line[header.end() - header.start() :].decode("utf-8", "replace")
    tail, found = _tail(prefix.module, rest)
    return LogLine(
        prefix,
        prefix.module,
        prefix.pid,
        _second_ns(second) + int(milli + micro) * 1_000,
        tail.name,
        int(found[tail.tid]) if tail.tid else None,
        found[tail.func] if tail.func else None,
        found[tail.sub] if tail.sub else None,
        found[tail.op_name] if tail.op_name else None,
        rest[found.end() :],
        len(line) - prefix.level_at >= CUT_LENGTH_BYTES,
        place or b"",
    )


def continue_line(line: LogLine, continuation: bytes) -> LogLine:
    """``line`` with the text of a later physical line of the same message."""
    text = continuation.rstrip(b"\r\n").decode("utf-8", "replace")
    op_name = line.op_name
    if named := re.match(_OP_NAME, text):
        op_name, text = named["name"], text[named.end() :]
    return replace(line, text=text, op_name=op_name, cut=False)


def header_census(block: bytes) -> tuple[int, list[int]]:
    """Count the header lines of ``block`` and give the offsets of lines that look like one but are none."""
    good = {m.start() for m in _LINE_HEADER.finditer(block)}
    bad = [m.start() for m in _LINE_LOOKS.finditer(block) if m.start() not in good]
    return len(good), bad


_LINE_HEADER = re.compile(rb"^" + HEADER.pattern, re.MULTILINE)
_LINE_LOOKS = re.compile(rb"^" + LOOKS_LIKE_HEADER.pattern, re.MULTILINE)


def _tail(module: str, rest: str) -> tuple[_Tail, re.Match[str]]:
    for tail in _MODULE_TAILS.get(module, _TAILS):
        if found := tail.pattern.match(rest):
            return tail, found
    raise AssertionError("the plain shape matches every tail")


@lru_cache(maxsize=4096)
def _read_prefix(text: bytes) -> Prefix:
    found = re.match(_PREFIX, text)
    if found is None:
        raise AssertionError("HEADER has matched this prefix")
    path, path_line, level, module, pid, process = (
        (part or b"").decode("utf-8", "replace") for part in found.groups()
    )
    place = f"{path}:{path_line}" if path else None
    return Prefix(level, module, int(pid), process, place, found.start("level") - 1)


@lru_cache(maxsize=4096)
def _second_ns(second: bytes) -> int:
    text = second.decode()
    try:
        moment = datetime.strptime(text[:10] + " " + text[11:], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(moment.timestamp()) * 1_000_000_000
