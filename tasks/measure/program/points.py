"""Measures the points of a plan in order and says of each what was proved; the first failure ends it all.

After one failed operator a device runtime drops later ones silently, so nothing measured afterwards would be
worth keeping: the finished samples stay, the rest of the points is ``unmeasured``.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping

from backends import Backend, Call, Prepared
from capture_files import CaptureFolder
from operations import prepare
from plan_file import NPUGRAPH, Plan
from sampling import Row, Sampler
from weights import Weights

Record = Dict[str, Any]


TILING_CALLS = 3
"""Calls of a point in a process that only tiles: the log must say the same each time."""


class PointFailed(RuntimeError):
    """An operator raised; the message names the point and what it said."""


class FormatNotProved(RuntimeError):
    """A weight that is not in the format its arm is named after."""


class Measurement:
    """Takes the points of one plan, one after another, and keeps a record of each."""

    def __init__(
        self, plan: Plan, backend: Backend, weights: Weights, sampler: Sampler, folder: CaptureFolder
    ) -> None:
        self._plan = plan
        self._backend = backend
        self._weights = weights
        self.sampler = sampler
        self._sustained_load_s = backend.sustained_load_s
        self._folder = folder
        self.sample_count = 0
        self.discarded_count = 0
        self.records: List[Record] = [
            {"point_id": point["point_id"], "order": order, "status": "unmeasured", "reason": None}
            for order, point in enumerate(plan["points"])
        ]

    def prepare(self, point: Any) -> Prepared:
        """Set one point of the plan up; the same point gets the same values every time."""
        prepared = prepare(point, self._weights, self._plan["seed"], self._backend)
        if self._backend.proves_format:
            _prove_format(point, prepared)
        if point["launch_mode"] == NPUGRAPH:
            prepared = prepared._replace(calls=self._backend.captured(self._to_capture(prepared)))
        return prepared

    def _to_capture(self, prepared: Prepared) -> List[Call]:
        """One graph a weight copy. The host tiles at capture, so a process that only tiles captures as often
        as it would have called.
        """
        if self._plan["kind"] != "tiling":
            return prepared.calls
        return [prepared.calls[index % len(prepared.calls)] for index in range(TILING_CALLS)]

    def take(self, order: int) -> None:
        """Measure the point at ``order``. Raises PointFailed; its samples up to then are written."""
        point, record = self._plan["points"][order], self.records[order]
        rows: List[Row] = []
        try:
            prepared = self.prepare(point)
            self._backend.forget_dispatched()
            if self._plan["kind"] == "tiling":
                self._untimed(prepared, TILING_CALLS)
                # Replays are not tiled: what is logged are the captures and the eager call before them.
                record["profiled_calls"] = TILING_CALLS + (point["launch_mode"] == NPUGRAPH)
            elif self._plan["kind"] == "counters":
                self._untimed(prepared, 1)
            elif prepared.timed:
                self._sustain_once(prepared)
                timing = self.sampler.take(point["point_id"], prepared.calls, rows)
                record["timing"] = timing._asdict()
            else:
                self._untimed(prepared, 1)
                timing = self.sampler.untimed(point["point_id"], point["operation"], rows)
                record["timing"] = timing._asdict()
            record.update(self._proved(prepared), status="measured")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            record.update(status="failed", reason=reason)
            raise PointFailed(f"point {point['point_id']} ({point['operation']}): {reason}") from error
        finally:
            self._folder.rows("samples.jsonl", rows)
            self.sample_count += len(rows)
            self.discarded_count += sum(row["discarded"] for row in rows)

    def _sustain_once(self, prepared: Prepared) -> None:
        """Load the device before the first sample of the process: idle cores clock down."""
        end_s = time.monotonic() + self._sustained_load_s
        while time.monotonic() < end_s:
            self._backend.run(prepared.calls)
        self._sustained_load_s = 0.0

    def _untimed(self, prepared: Prepared, calls: int) -> None:
        for index in range(calls):
            prepared.calls[index % len(prepared.calls)]()
        self._backend.synchronise()

    def profiled(self, calls: int) -> None:
        """Note that every point was called ``calls`` times under the profiler."""
        for record in self.records:
            record["profiled_calls"] = calls

    def _proved(self, prepared: Prepared) -> Record:
        """Format of every weight copy, the kernel that served the operator, and the strides it was given."""
        loaded = prepared.weights
        return {
            "main_operator": prepared.main_operator,
            "kernels_per_call": prepared.kernels,
            "dispatched_operator": self._backend.dispatched(prepared.main_operator),
            "weight_format": _one_format(loaded.formats) if loaded else None,
            "weight_copies": len(loaded.copies) if loaded else 0,
            "weight_rotation_bytes": loaded.size_bytes if loaded else 0,
            "shape_x": list(prepared.x.shape),
            "strides_x": list(prepared.x.stride()),
            "shape_w": list(loaded.copies[0].shape) if loaded else None,
            "strides_w": list(loaded.copies[0].stride()) if loaded else None,
        }


def _prove_format(point: Mapping[str, Any], prepared: Prepared) -> None:
    """Raises FormatNotProved where a copy has another format than the arm asks for."""
    wanted, loaded = point.get("weight_format_requested"), prepared.weights
    if loaded is None or wanted is None or set(loaded.formats) == {wanted}:
        return
    if wanted == "FRACTAL_NZ":
        raise FormatNotProved(
            f"the weight stayed {_one_format(loaded.formats)} where FRACTAL_NZ was asked for: internal "
            "formats are not allowed, the cast is switched off, or the shape fills no whole fractals"
        )
    raise FormatNotProved(f"the weight is {_one_format(loaded.formats)} where {wanted} was asked for")


def _one_format(formats: List[str]) -> str:
    return formats[0] if len(set(formats)) == 1 else "mixed"
