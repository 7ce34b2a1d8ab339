"""Hardware counters of kernel rows as one map a row, without the zeros of cores that did not run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_FAMILIES = {
    "aic": (
        ("aic_", "aicore_", "cube_utilization"),
        ("aic_total_cycles",),
        ("aicore_time(us)", "aic_time(us)"),
    ),
    "aiv": (("aiv_",), ("aiv_total_cycles",), ("aiv_time(us)",)),
}
_IDLE_TYPES = {"aic": ("AI_VECTOR_CORE",), "aiv": ("AI_CORE",)}


def counter_maps(names: Sequence[str], columns: Sequence[pa.Array], task_type: pa.Array | None) -> pa.Array:
    """``map<string, double>`` of the counters of every row; null where a row has none.

    Absent values are left out. Zeros are left out where they are no measurement: of a core kind whose cycle
    counter is zero (by task type where there is no such counter), and of the times of a core kind that has
    cycles but no time, as level 0 writes them.
    """
    rows = len(columns[0]) if columns else 0
    values = np.empty((len(names), rows), dtype=np.float64)
    for index, column in enumerate(columns):
        values[index] = column.to_numpy(zero_copy_only=False)
    present = ~np.isnan(values)
    for family in _FAMILIES:
        _drop_false_zeros(family, tuple(names), values, present, task_type)
    present = np.ascontiguousarray(present.T)
    counts = present.sum(axis=1)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    items = pa.array(np.ascontiguousarray(values.T)[present])
    return pa.MapArray.from_arrays(_null_where_empty(offsets, counts), _keys(tuple(names), present), items)


def _keys(names: tuple[str, ...], present: npt.NDArray[np.bool_]) -> pa.Array:
    """Names of the present counters, row after row: rows have them in a few patterns, each joined once."""
    rows, width = len(present), (len(names) + 7) // 8
    packed = pa.py_buffer(np.packbits(present, axis=1))
    patterns = pa.Array.from_buffers(pa.binary(width), rows, [None, packed]).dictionary_encode()
    chosen = [_joined(names, bits) for bits in patterns.dictionary.to_pylist()]
    text = _spread([keys for keys, _ in chosen], patterns.indices)
    lengths = np.frombuffer(_spread([lengths for _, lengths in chosen], patterns.indices), np.int32)
    ends = np.cumsum(lengths, dtype=np.int32)
    offsets = pa.py_buffer(np.concatenate((np.zeros(1, np.int32), ends)))
    return pa.Array.from_buffers(pa.string(), len(ends), [None, offsets, text])


@lru_cache(maxsize=1024)
def _joined(names: tuple[str, ...], bits: bytes) -> tuple[bytes, bytes]:
    """The names whose bit is set, and their lengths as int32, each as one piece."""
    chosen = [name.encode() for name, bit in zip(names, _unpacked(bits), strict=False) if bit]
    return b"".join(chosen), np.array([len(name) for name in chosen], np.int32).tobytes()


def _unpacked(bits: bytes) -> list[int]:
    unpacked: list[int] = np.unpackbits(np.frombuffer(bits, np.uint8)).tolist()
    return unpacked


def _spread(pieces: list[bytes], index: pa.Array) -> pa.Buffer:
    """One piece after the other in the order of ``index``: a copy a row, not one a name."""
    taken = pa.array(pieces, pa.binary()).take(index)
    size = int(np.frombuffer(taken.buffers()[1], np.int32)[len(index)])
    return (taken.buffers()[2] or pa.py_buffer(b"")).slice(0, size)


def _null_where_empty(offsets: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(offsets, mask=np.append(counts == 0, False))


@lru_cache(maxsize=64)
def _members(family: str, names: tuple[str, ...]) -> tuple[list[int], int | None, int | None]:
    """Counters of a core kind, that of its cycles and that of its time, as indices of ``names``."""
    prefixes, *leaders = _FAMILIES[family]
    members = [i for i, name in enumerate(names) if name.startswith(prefixes)]
    cycles, time = (next((names.index(n) for n in leader if n in names), None) for leader in leaders)
    return members, cycles, time


def _drop_false_zeros(
    family: str,
    names: tuple[str, ...],
    values: npt.NDArray[np.float64],
    present: npt.NDArray[np.bool_],
    task_type: pa.Array | None,
) -> None:
    """Unset ``present`` for false zeros; both matrices have a row for every name."""
    members, cycles, times = _members(family, names)
    busy = np.ones(values.shape[1], dtype=np.bool_)
    timed = busy
    if cycles is not None:
        busy = values[cycles] > 0
        if times is not None:
            timed = ~(busy & (values[times] == 0))
    elif task_type is not None:
        idle = pc.fill_null(pc.is_in(task_type, value_set=pa.array(_IDLE_TYPES[family])), False)
        busy = ~idle.to_numpy(zero_copy_only=False)
    for index in members:
        believed = busy & timed if names[index].endswith("time(us)") else busy
        present[index] &= (values[index] != 0) | believed
