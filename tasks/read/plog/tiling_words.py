"""Tiling data in memory dumps: argument words of a kernel, and bytes printed as ``0x.. 0x..``.

The arguments of a kernel are 64-bit words; one of them points to the tiling data, which lies right behind the
pointers in the same block. The block's address is printed as ``para base``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewatch.tasks.read.plog.tiling_layouts import decode_words

_HEX_BYTE = re.compile(r"0x([0-9a-f]{2})(?![0-9a-f])")
_WORD = re.compile(r"(?<![\w:])(0x[0-9a-f]+|\d{1,20})(?=[,\s.]|$)")
_UINT64_MAX = (1 << 64) - 1


def words_of_hex(text: str, *, cut: bool = False) -> list[int]:
    """64-bit words of an argument line, hexadecimal or decimal. The last one of a cut line is dropped."""
    found = _WORD.findall(text.split(", addr:")[0])
    if cut and found:
        found.pop()
    words = [int(token, 16) if token.startswith("0x") else int(token) for token in found]
    return [word for word in words if word <= _UINT64_MAX]


def bytes_of_hex(text: str, *, cut: bool = False) -> bytes:
    """Bytes of a ``0x04 0x00 …`` print; what the logger cut inside the last byte is dropped."""
    found = _HEX_BYTE.findall(text)
    if cut and found and not text.endswith(" "):
        found.pop()
    return bytes(int(token, 16) for token in found)


def tiling_fields(
    op_type: str | None,
    words: Mapping[int, int],
    base: int | None,
    size_bytes: int | None,
    printed: bytes = b"",
) -> dict[str, str]:
    """What the dump of a kernel says about its tiling data, by field name where the layout is known.

    ``words`` are argument words by index, ``base`` their address, ``size_bytes`` the tiling data's size where
    it is known. Without ``base`` the arguments stay as they are, under ``args``.
    """
    fields: dict[str, str] = {}
    data = _behind_pointer(words, base)
    if data and size_bytes is not None:
        data = data[:size_bytes]
    if words and not data:
        fields["args"] = ",".join(f"{words[i]:#x}" for i in sorted(words))
    data = data or printed
    if not data:
        return fields
    if size_bytes is not None:
        fields["tiling_data_bytes"] = str(size_bytes)
    whole = len(data) // 4 * 4
    numbers = tuple(int.from_bytes(data[i : i + 4], "little") for i in range(0, whole, 4))
    named = decode_words(op_type, numbers) if op_type and size_bytes == whole else None
    return {**fields, **(named.fields if named else {"tiling_data": ",".join(map(str, numbers))})}


def _behind_pointer(words: Mapping[int, int], base: int | None) -> bytes:
    if base is None or not words or sorted(words) != list(range(len(words))):
        return b""
    # Pointers into the block point to tiling data, or to small inputs of the host, which lie behind it.
    places = [divmod(word - base, 8) for word in words.values()]
    inside = [place for place, odd in places if not odd and 0 < place < len(words)]
    first = min(inside, default=len(words))
    return b"".join(words[i].to_bytes(8, "little") for i in range(first, len(words)))
