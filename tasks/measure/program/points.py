"""Measures the points of a plan in order and says of each what was proved; the first failure ends it all.

After one failed operator a device runtime drops later ones silently, so nothing measured afterwards would be
worth keeping: the finished samples stay, the rest of the points is ``unmeasured``.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import cpu_kernels
from capture_files import CaptureFolder
from operations import MM, Prepared, prepare
from plan_file import Plan
from sampling import Row, Sampler
from weights import Weights

Record = Dict[str, Any]


class PointFailed(RuntimeError):
    """An operator raised; the message names the point and what it said."""


class Measurement:
    """Takes the points of one plan, one after another, and keeps a record of each."""

    def __init__(self, plan: Plan, weights: Weights, sampler: Sampler, folder: CaptureFolder) -> None:
        self._plan = plan
        self._weights = weights
        self.sampler = sampler
        self._folder = folder
        self.sample_count = 0
        self.discarded_count = 0
        self.records: List[Record] = [
            {"point_id": point["point_id"], "order": order, "status": "unmeasured", "reason": None}
            for order, point in enumerate(plan["points"])
        ]

    def prepare(self, point: Any) -> Prepared:
        """Set one point of the plan up; the same point gets the same values every time."""
        return prepare(point, self._weights, self._plan["seed"])

    def take(self, order: int) -> None:
        """Measure the point at ``order``. Raises PointFailed; its samples up to then are written."""
        point, record = self._plan["points"][order], self.records[order]
        rows: List[Row] = []
        try:
            prepared = self.prepare(point)
            cpu_kernels.forget_dispatched()
            if prepared.timed:
                timing = self.sampler.take(point["point_id"], prepared.calls, rows)
            else:
                prepared.calls[0]()
                timing = self.sampler.untimed(point["point_id"], point["operation"], rows)
            record.update(_proved(prepared), timing=timing._asdict(), status="measured")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            record.update(status="failed", reason=reason)
            raise PointFailed(f"point {point['point_id']} ({point['operation']}): {reason}") from error
        finally:
            self._folder.rows("samples.jsonl", rows)
            self.sample_count += len(rows)
            self.discarded_count += sum(row["discarded"] for row in rows)

    def profiled(self, calls: int) -> None:
        """Note that every point was called ``calls`` times under the profiler."""
        for record in self.records:
            record["profiled_calls"] = calls


def _proved(prepared: Prepared) -> Record:
    """Format of every weight copy, the kernel that served the operator, and the strides it was given."""
    loaded = prepared.weights
    return {
        "main_operator": prepared.main_operator,
        "kernels_per_call": prepared.kernels,
        "dispatched_operator": _dispatched(prepared),
        "weight_format": _one_format(loaded.formats) if loaded else None,
        "weight_copies": len(loaded.copies) if loaded else 0,
        "weight_rotation_bytes": loaded.size_bytes if loaded else 0,
        "shape_x": list(prepared.x.shape),
        "strides_x": list(prepared.x.stride()),
        "shape_w": list(loaded.copies[0].shape) if loaded else None,
        "strides_w": list(loaded.copies[0].stride()) if loaded else None,
    }


def _dispatched(prepared: Prepared) -> Optional[str]:
    served = cpu_kernels.dispatched(prepared.main_operator)
    return prepared.main_operator if served is None and prepared.main_operator == MM else served


def _one_format(formats: List[str]) -> str:
    return formats[0] if len(set(formats)) == 1 else "mixed"
