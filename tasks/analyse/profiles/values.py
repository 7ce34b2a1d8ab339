"""What each kernel group and each cost category took in every step of one capture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.tasks.analyse.profiles.rows import Rows, rows_of
from tilewatch.tasks.analyse.profiles.steps import OUTSIDE, WHOLE, Steps, steps_of
from tilewatch.tasks.analyse.savings.exposed import owned
from tilewatch.tasks.read.captures.profile_capture import ProfileCapture

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """One capture, counted. Arrays have a row a kept step and a column a kernel group (or category).

    ``time`` is the summed duration, ``exposed`` what of the step the group owns, both ns; ``wall`` is the
    time of each step, of which computing, communication and idle are the parts.
    """

    capture: ProfileCapture
    rows: Rows
    steps: Steps
    time: Floats
    calls: Floats
    exposed: Floats
    categories: tuple[str, ...]
    by_category: Floats
    wall: Floats
    computing: Floats
    communication: Floats

    @property
    def has_steps(self) -> bool:
        """False where the capture was not cut into steps, so that nothing can be said a step."""
        return self.steps.how != WHOLE

    @property
    def idle(self) -> Floats:
        """Time of each step in which nothing runs."""
        return np.asarray(self.wall - self.computing - self.communication)

    def sequence(self) -> list[int]:
        """Kernel groups in the order of a step as the program repeats it, on its main stream."""
        found: list[int] = self.rows.group[self.steps.model].tolist()
        return found

    def durations(self, groups: list[int]) -> Floats:
        """Single durations of all calls of ``groups`` in kept steps."""
        step = self.steps.of_row
        counted = (step != OUTSIDE) & self.steps.kept[np.maximum(step, 0)] & np.isin(self.rows.group, groups)
        return np.asarray((self.rows.end - self.rows.start)[counted], dtype=np.float64)


def profile_of(capture: ProfileCapture) -> Profile:
    """Rows, steps and sums of one capture; kernels of odd steps and outside of steps are not counted."""
    rows = rows_of(capture.kernels)
    steps = steps_of(rows)
    number = np.cumsum(steps.kept) - 1
    inside = steps.of_row != OUTSIDE
    counted = np.flatnonzero(inside & steps.kept[np.maximum(steps.of_row, 0)])
    step = number[steps.of_row[counted]]
    count = int(steps.kept.sum())
    exposed = _exposed(rows, steps, counted)
    spent = (rows.end - rows.start)[counted]
    group = rows.group[counted]
    category = rows.category.indices.to_numpy(zero_copy_only=False)[counted]
    groups, categories = rows.groups.num_rows, tuple(rows.category.dictionary.to_pylist())
    communicates = rows.communicates[counted]
    return Profile(
        capture=capture,
        rows=rows,
        steps=steps,
        time=_sums(step, group, count, groups, spent),
        calls=_sums(step, group, count, groups, np.ones(len(group))),
        exposed=_sums(step, group, count, groups, exposed),
        categories=categories,
        by_category=_sums(step, category, count, len(categories), exposed),
        wall=steps.wall[steps.kept].astype(np.float64),
        computing=_total(step, np.where(communicates, 0.0, exposed), count),
        communication=_total(step, np.where(communicates, exposed, 0.0), count),
    )


def _exposed(rows: Rows, steps: Steps, counted: npt.NDArray[np.int64]) -> Floats:
    """Exposed time of every counted row by the ownership rule; what reaches beyond its step is cut."""
    step = steps.of_row[counted]
    begin = rows.start[counted]
    end = np.maximum(np.minimum(rows.end[counted], steps.end[step]), begin)
    _, dense = np.unique(step, return_inverse=True)
    order = np.lexsort((end, begin, dense))
    parts = owned(
        pa.table(
            {
                "step": dense[order],
                "start_ns": begin[order],
                "end_ns": end[order],
                "communicates": rows.communicates[counted][order],
            }
        )
    )
    exposed = np.zeros(len(counted))
    exposed[order] = parts["exposed_ns"].to_numpy()
    return exposed


def _sums(
    step: npt.NDArray[np.int64],
    kind: npt.NDArray[np.int64],
    steps: int,
    kinds: int,
    weights: npt.NDArray[np.generic],
) -> Floats:
    return _total(step * kinds + kind, weights, steps * kinds).reshape(steps, kinds)


def _total(index: npt.NDArray[np.int64], weights: npt.NDArray[np.generic], count: int) -> Floats:
    return np.asarray(np.bincount(index, weights, minlength=count), dtype=np.float64)
