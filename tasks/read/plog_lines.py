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

HEADER = re.compile(
    rb"(?:(?P<grep_path>[^\s:\[\]]+):(?P<grep_line>\d+):)?"  # people paste the output of grep -rn
    rb"(?:\[\d+(?:,\d+)+\] ?)?"  # tag of the device-side daemon
    rb"\[(?P<level>[A-Z]+|\d+)\] (?P<module>\w+)\((?P<pid>\d+), ?(?P<process>[^\n]{0,64}?)\): ?"
    rb"(?P<second>\d{4}-\d\d-\d\d[- ]\d\d:\d\d:\d\d)\.(?P<ms>\d{3})\.(?P<us>\d{3}) "
    rb"(?P<tags>(?:\[[a-z]+:\w+\] )*)"
    rb"\[(?P<place>[^\n]{0,400}?:\d+)\]"
)
LOOKS_LIKE_HEADER = re.compile(rb"(?:[^\s:\[\]]+:\d+:)?(?:\[\d+(?:,\d+)+\] ?)?\[(?:[A-Z]+|\d+)\] \w+\(\d+,")

# Shapes after ``[file:line]``, most specific first: (name, pattern). All modules share them; the name tells
# which one a line has, so that a new shape of a known module shows up in a census.
_SHAPES = (
    ("op", r"\[(?P<sub>\w+)\]\[(?P<func>[^\]\n]*)\]\[(?P<tid>\d+)\] ?"),
    ("driver", r"\[ascend\]\[curpid:\d+,(?P<tid>\d+)\]\[drv\]\[\w+\]\[(?P<func>[^\]\n]*)\]"),
    ("buffer", r"\[bufmng\] \[(?P<func>[^\]\n]*)\] ?"),
    ("framework", r"\[(?P<sub>TF_ADAPTER)\] \[[^\]\n]*:\d+\] ?"),
    ("tune", r"\[(?P<sub>CANNKB)\]\[Tid:(?P<tid>\d+)\]"),
    ("hccl", r" \[(?P<tid>\d+)\]\[[^\]\n]*\]\[(?P<func>[^\]\n]*)\] ?"),
    ("function_tid", r"\[(?P<func>[^\]\n]*)\]\[tid:(?P<tid>\d+)\] ?"),
    ("tid", r" ?\[tid: ?(?P<tid>\d+)\](?:>>>)? ?"),
    ("paren_tid", r" ?(?:>>> )?\(tid:(?P<tid>\d+)\) ?"),
    ("call", r"(?:\[status:\w+\])? ?(?P<tid>\d+) (?:\[\w+\] )?(?P<func>~?[\w:~]+?): ?(?!:)"),
    ("bare_call", r" ?(?P<tid>\d+) (?P<func>\w+) "),
    ("function", r"\[(?P<func>[^\]\n]*)\] ?"),
    ("plain", r""),
)
_TAILS = tuple((name, re.compile(pattern)) for name, pattern in _SHAPES)
_BY_MODULE = {
    "OP": ("op",),
    "RUNTIME": ("call",),
    "GE": ("call",),
    "ASCENDCL": ("call",),
    "IDEDD": ("tid",),
    "ASCENDCKERNEL": ("function",),
}
_FAST = {module: tuple(t for t in _TAILS if t[0] in names) for module, names in _BY_MODULE.items()}
_OP_NAME = re.compile(r"(?:errno\[\d+\] )?OpName:\[([^\]]*)\] ?")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that starts a message. ``logged_ns`` is the host's local wall time read as if it were UTC.

    ``pid`` is the one in the line, never the one in the file's name: a forked child may write into its
    parent's file. ``cut`` is True where the line has the length at which the logger cuts.
    """

    level: str
    module: str
    pid: int
    process: str
    logged_ns: int
    place: str
    shape: str
    tid: int | None
    function: str | None
    submodule: str | None
    op_name: str | None
    text: str
    cut: bool
    grep_place: str | None


def parse_line(line: bytes) -> LogLine | None:
    """Parse one physical line; None where it has no header (a continuation, or no plog at all)."""
    line = line.rstrip(b"\r\n")
    header = HEADER.match(line)
    if header is None:
        return None
    path, path_line, level, module_name, pid, process, second, ms, us, _, place = header.groups()
    module = module_name.decode()
    rest = line[header.end() :].decode("utf-8", "replace")
    shape, tid, function, submodule, end = _tail(module, rest)
    op_name = None
    if shape == "op" and (named := _OP_NAME.match(rest, end)):
        op_name, end = named.group(1), named.end()
    prefix_length = header.start("level") - 1
    return LogLine(
        level=level.decode(),
        module=module,
        pid=int(pid),
        process=process.decode("utf-8", "replace"),
        logged_ns=_second_ns(second) + int(ms) * 1_000_000 + int(us) * 1_000,
        place=place.decode("utf-8", "replace"),
        shape=shape,
        tid=tid,
        function=function,
        submodule=submodule,
        op_name=op_name,
        text=rest[end:],
        cut=len(line) - prefix_length >= CUT_LENGTH_BYTES,
        grep_place=f"{path.decode('utf-8', 'replace')}:{path_line.decode()}" if path else None,
    )


def continue_line(line: LogLine, continuation: bytes) -> LogLine:
    """``line`` with the text of a later physical line of the same message."""
    text = continuation.rstrip(b"\r\n").decode("utf-8", "replace")
    op_name = line.op_name
    if named := _OP_NAME.match(text):
        op_name, text = named.group(1), text[named.end() :]
    return replace(line, text=text, op_name=op_name, cut=False)


def header_census(block: bytes) -> tuple[int, list[int]]:
    """Count the header lines of ``block`` and give the offsets of lines that look like one but are none."""
    good = {m.start() for m in _LINE_HEADER.finditer(block)}
    bad = [m.start() for m in _LINE_LOOKS.finditer(block) if m.start() not in good]
    return len(good), bad


_LINE_HEADER = re.compile(rb"^" + HEADER.pattern, re.MULTILINE)
_LINE_LOOKS = re.compile(rb"^" + LOOKS_LIKE_HEADER.pattern, re.MULTILINE)


def _tail(module: str, rest: str) -> tuple[str, int | None, str | None, str | None, int]:
    for name, pattern in (*_FAST.get(module, ()), *_TAILS):
        if found := pattern.match(rest):
            groups = found.groupdict()
            tid = groups.get("tid")
            return name, int(tid) if tid else None, groups.get("func"), groups.get("sub"), found.end()
    raise AssertionError("the plain shape matches every tail")


@lru_cache(maxsize=4096)
def _second_ns(second: bytes) -> int:
    text = second.decode()
    try:
        moment = datetime.strptime(text[:10] + " " + text[11:], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(moment.timestamp()) * 1_000_000_000
