"""Tiling keys as bit fields: composed by the branches, taken apart to say which part of a key differs."""

from __future__ import annotations

from tilewatch.tasks.predict.arithmetic.integers import IntArray, ints


class KeyLayout:
    """Named bit fields from the lowest bit upwards, ``KeyLayout(("TRANS", 2), ("KTT", 2))``."""

    def __init__(self, *fields: tuple[str, int]) -> None:
        self.fields = fields

    def compose(self, **values: int | IntArray) -> IntArray:
        """The key of ``values``; fields left out are 0."""
        key = ints(0)
        shift = 0
        for name, width in self.fields:
            key = key | ints(values.get(name, 0)) << shift
            shift += width
        return key

    def split(self, key: IntArray) -> dict[str, IntArray]:
        """Every field of ``key`` by name."""
        parts: dict[str, IntArray] = {}
        shift = 0
        for name, width in self.fields:
            parts[name] = key >> shift & (1 << width) - 1
            shift += width
        return parts
