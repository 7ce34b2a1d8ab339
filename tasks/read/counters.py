"""Hardware counters of kernel rows as one map a row, without the zeros of cores that did not run."""

from __future__ import annotations

from collections.abc import Sequence

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

Matrix = npt.NDArray[np.float64]


def counter_maps(names: Sequence[str], columns: Sequence[pa.Array], task_type: pa.Array | None) -> pa.Array:
    """``map<string, double>`` of the counters of every row; null where a row has none.

    Absent values are left out. Zeros are left out where they are no measurement: of a core kind whose cycle
    counter is zero (by task type where there is no such counter), and of the times of a core kind that has
    cycles but no time, as level 0 writes them.
    """
    rows = len(columns[0]) if columns else 0
    values = np.empty((rows, len(names)), dtype=np.float64)
    for index, column in enumerate(columns):
        values[:, index] = column.to_numpy(zero_copy_only=False)
    present = ~np.isnan(values)
    for family in _FAMILIES:
        _drop_false_zeros(family, list(names), values, present, task_type)
    counts = present.sum(axis=1)
    key_index = np.broadcast_to(np.arange(len(names), dtype=np.int32), values.shape)[present]
    keys = pa.array(list(names), type=pa.string()).take(pa.array(key_index))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.MapArray.from_arrays(_null_where_empty(offsets, counts), keys, pa.array(values[present]))


def _null_where_empty(offsets: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(offsets, mask=np.append(counts == 0, False))


def _drop_false_zeros(
    family: str,
    names: list[str],
    values: Matrix,
    present: npt.NDArray[np.bool_],
    task_type: pa.Array | None,
) -> None:
    prefixes, cycle_names, time_names = _FAMILIES[family]
    members = [i for i, name in enumerate(names) if name.startswith(prefixes)]
    if not members:
        return
    zero = values[:, members] == 0
    idle = np.zeros(len(values), dtype=np.bool_)
    if cycles := [names.index(name) for name in cycle_names if name in names]:
        idle |= ~(values[:, cycles[0]] > 0)
        if times := [names.index(name) for name in time_names if name in names]:
            untimed = (values[:, cycles[0]] > 0) & (values[:, times[0]] == 0)
            is_time = np.array([names[i].endswith("time(us)") for i in members])
            present[:, members] &= ~(zero & untimed[:, None] & is_time[None, :])
    elif task_type is not None:
        idle |= pc.fill_null(pc.is_in(task_type, value_set=pa.array(_IDLE_TYPES[family])), False).to_numpy(
            zero_copy_only=False
        )
    present[:, members] &= ~(zero & idle[:, None])
