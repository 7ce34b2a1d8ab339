"""One simulated process: its plan in, a capture folder in the real file formats out. Nothing is executed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.collect.manifest import write_manifest
from tilewatch.tasks.plan.order import seed_for
from tilewatch.tasks.predict.records import TilingRecord
from tilewatch.tasks.simulate.builds import SimulatedBuild
from tilewatch.tasks.simulate.cost_model import call_ns, kernels_ns
from tilewatch.tasks.simulate.kernel_details import PATH as KERNELS_PATH
from tilewatch.tasks.simulate.kernel_details import KernelDetailsWriter
from tilewatch.tasks.simulate.plog import API, PlogWriter
from tilewatch.tasks.simulate.samples import process_ratio, sample_rows, untimed_row
from tilewatch.tasks.simulate.tiling import OPERATORS, records_of

AGENT = EVIDENCE = "simulated"
DEVICE_PREFIX = "SIMULATED "
SCHEMA_VERSION = 1
TILED_CALLS = 2
"""Calls of each point in a tiling process: a second one shows that the decision repeats."""
NAMES = {
    "dynamic_quant": "npu::npu_dynamic_quant",
    "quant_matmul": "npu::npu_quant_matmul",
    "grouped_matmul": "npu::npu_grouped_matmul",
    "matmul": "aten::mm",
}
"""Operators of the framework, by the names of the cost model."""
FROM_THE_PLAN = (
    "run_id", "experiment", "experiment_name", "plan_hash", "arm", "role", "kind", "process_index", "block",
    "seed", "lease_id", "build", "method", "method_hash", "amount",
)  # fmt: skip

Document = Mapping[str, Any]
Row = dict[str, Any]


class NotSimulatedError(TilewatchError):
    """A plan of another agent: a simulated capture can never be filed as measured."""


def write_capture(plan: Document, folder: Path, build: SimulatedBuild, started_ns: int) -> None:
    """Write the capture that the process of ``plan`` leaves on ``build``; the manifest comes last.

    What an interrupted writer left in ``folder`` is replaced. The same plan and build give the same bytes.
    Raises NotSimulatedError for a plan whose agent is not ``simulated``.
    """
    if plan["agent"] != AGENT:
        raise NotSimulatedError(f"the plan is for agent {plan['agent']}, not for {AGENT}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _json(folder / "plan.json", plan)
    process = _Process(plan, build, started_ns)
    if plan["kind"] == "tiling":
        process.tile()
        _text(folder / "log" / f"plog-{process.pid}_0.log", process.log.text)
    else:
        process.time()
        _text(folder / KERNELS_PATH, process.kernels.text)
    _lines(folder / "samples.jsonl", process.samples)
    _lines(folder / "points.jsonl", process.records)
    _json(folder / "environment.json", _environment(plan, build))
    _json(folder / "capture.json", _capture(plan, process, started_ns))
    for name in ("stdout.log", "stderr.log"):
        _text(folder / name, "")
    write_manifest(folder)


class _Process:
    """What one process leaves, point by point in the order of its plan."""

    def __init__(self, plan: Document, build: SimulatedBuild, started_ns: int) -> None:
        self._plan, self._build = plan, build
        self.pid = 10_000 + seed_for(plan["seed"], "pid", plan["kind"]) % 50_000
        self.samples: list[Row] = []
        self.records: list[Row] = []
        self.log = PlogWriter(self.pid, started_ns, build.platform)
        self.kernels = KernelDetailsWriter(started_ns)

    def time(self) -> None:
        """Samples of every point, then the profiled calls."""
        for point in self._plan["points"]:
            kernels = self._kernels(point)
            if point["operation"] == "tuple_input":
                self.samples.append(untimed_row(point["point_id"], len(self.samples), "tuple_input"))
            else:
                self.samples += sample_rows(
                    self._build.truth, self._plan, point, call_ns(kernels), len(self.samples)
                )
            calls = self._plan["amount"]["profiled_calls"]
            factor = process_ratio(self._build.truth, self._plan, point["point_id"])
            profiled = {operator: duration_ns * factor for operator, duration_ns in kernels.items()}
            records = self._tiling(point)
            self.kernels.point(point, profiled, records, calls)
            self.records.append(self._record(point, records, calls))

    def tile(self) -> None:
        """The launches of every point in the log; nothing is timed."""
        for point in self._plan["points"]:
            records = self._tiling(point)
            for _ in range(TILED_CALLS):
                for record in records.values():
                    self.log.launch(record, point)
            self.records.append(self._record(point, records, TILED_CALLS))

    @property
    def discarded(self) -> int:
        """Samples thrown away."""
        return sum(row["discarded"] for row in self.samples)

    def _tiling(self, point: Document) -> dict[str, TilingRecord]:
        planted = self._build.truth.tiling(self._plan["experiment"], self._plan["arm"], point)
        return records_of(point, self._build.platform, self._build.cann, planted)

    def _kernels(self, point: Document) -> dict[str, float]:
        """Time of each kernel; what is planted acts on the time alone, so planted tiling is not costed."""
        records = records_of(point, self._build.platform, self._build.cann, {})
        costed = {name: _columns(record) for name, record in records.items()}
        found = kernels_ns(point, costed)
        ratio = self._build.truth.ratio(self._plan["experiment"], self._plan["arm"], point)
        return {operator: duration_ns * ratio for operator, duration_ns in found.items()}

    def _record(self, point: Document, records: Mapping[str, TilingRecord], calls: int) -> Row:
        operators = OPERATORS[point["operation"]]
        k, n, experts = point["k"], point["n"], point["local_experts"]
        weight = None if point["operation"] == "dynamic_quant" else [experts, k, n] if experts else [k, n]
        return {
            "point_id": point["point_id"],
            "order": len(self.records),
            "status": "measured",
            "reason": None,
            "main_operator": NAMES[operators[-1]],
            "kernels_per_call": {NAMES[operator]: 1 for operator in operators},
            "dispatched_operator": API[records[operators[-1]].op_type],
            "weight_format": point["weight_format_requested"] if weight else None,
            "shape_x": [point["m_executed"], k],
            "strides_x": [k, 1],
            "shape_w": weight,
            "strides_w": None if weight is None else [k * n, n, 1][-len(weight) :],
            "profiled_calls": calls,
        }


def _columns(record: TilingRecord) -> Row:
    return {name: getattr(record, name) for name in ("base_m", "base_n", "used_core_num")}


def _capture(plan: Document, process: _Process, started_ns: int) -> Row:
    spent_ns = sum(row["interval_ns"] or 0 for row in process.samples)
    return {
        "schema_version": SCHEMA_VERSION,
        **{name: plan[name] for name in FROM_THE_PLAN},
        "agent": AGENT,
        "method_version": plan["method"]["method_version"],
        "evidence": EVIDENCE,
        "status": "complete",
        "failure_reason": None,
        "argv": [],
        "environment_variables": dict(plan["env"]),
        "sample_count": len(process.samples),
        "discarded_count": process.discarded,
        "in_calls_ns": spent_ns,
        "started_ns": started_ns,
        "ended_ns": started_ns + max(spent_ns, 1),
    }


def _environment(plan: Document, build: SimulatedBuild) -> Row:
    return {
        "build": {**plan["build"], "components": build.identity},
        "device": device_facts(build),
        "note": "SIMULATED: no device, driver or package of this capture exists",
    }


def device_facts(build: SimulatedBuild) -> Row:
    """The stand-in device, named so that nobody can take it for a real one."""
    chip = build.platform
    return {
        "host": "simulated-host",
        "device": f"{DEVICE_PREFIX}{chip.name}",
        "device_class": f"simulated-{chip.name}",
        "board": "SIMULATED",
        "cores": f"{chip.cube_cores} AIC, {chip.vector_cores} AIV",
        "cube_mhz": chip.cube_mhz,
        "l2_bytes": chip.l2_bytes,
        "deterministic_level": "0",
        "tuning_bank": "none",
    }


def _json(path: Path, document: Document) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _lines(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
