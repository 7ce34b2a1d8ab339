"""Which encoding a text file is in: UTF-8 as the profilers write it, else what an editor made of it."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

UTF_8 = "UTF-8"
GB18030 = "GB18030"

_PIECE_BYTES = 1 << 20
# Ideographs, their punctuation, full-width forms, and the signs that GBK has for them.
_CHINESE = re.compile("[\u2010-\u203b\u2460-\u2573\u25a0-\u2605\u3000-\u30ff\u3400-\u9fff\uff00-\uffee·×÷°±]")


def text_encoding(path: Path) -> str | None:
    """``UTF-8``, ``GB18030``, or None for a file in neither; one with damaged lines is still UTF-8.

    A file is taken for GB18030 where it is no UTF-8, all of it decodes, to Chinese, and fewer of its lines
    with more than ASCII are UTF-8 than are not.
    """
    right, wrong, chinese = 0, 0, True
    decoder = codecs.getincrementaldecoder("gb18030")()
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES) + stream.readline():
            if piece.isascii():
                continue
            for line in piece.split(b"\n"):
                if not line.isascii():
                    good = _is_utf8(line)
                    right, wrong = right + good, wrong + (not good)
            chinese = chinese and _is_chinese(decoder, piece)
    if not wrong:
        return UTF_8
    if chinese and wrong >= right:
        return GB18030
    return UTF_8 if right > wrong else None


def _is_chinese(decoder: codecs.IncrementalDecoder, piece: bytes) -> bool:
    decoder.reset()
    try:
        text = decoder.decode(piece, final=True)
    except UnicodeDecodeError:
        return False
    return all(_CHINESE.match(char) for char in set(text) if not char.isascii())


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
