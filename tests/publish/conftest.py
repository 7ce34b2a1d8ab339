"""Contract tables of small invented sweeps: every number follows from a formula, nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from data_contracts import from_rows

Row = dict[str, Any]

AXIS = {"dynamic_quant": (1, 4, 16, 64), "quant_matmul": (1, 2, 4, 8, 16, 32, 64, 128)}
AXIS["weight_format"] = AXIS["quant_matmul"]
AXIS["grouped_matmul"] = (1, 8, 64, 96, 127, 128, 129, 160, 256)
ARMS = {
    "dynamic_quant": ("standalone", "tuple_input"),
    "quant_matmul": ("standalone", "tuple_input", "bf16"),
    "weight_format": ("nz", "nd"),
    "grouped_matmul": ("int8", "bf16"),
}
LINEARS = {
    "dynamic_quant": (("wq_a", 4096, None), ("wq_b", 1024, None)),
    "quant_matmul": (("wq_a", 4096, 1024), ("wkv", 4096, 512), ("wq_b", 1024, 2048)),
    "weight_format": (("wq_a", 4096, 1024),),
    "grouped_matmul": (("w13", 4096, 4096),),
}
SPEED = {"tuple_input": 0.8, "bf16": 1.3, "nd": 1.25, "int8": 1.0}
STEP_AT = 128  # the invented cliff of grouped_matmul


def duration_ns(experiment: str, arm: str, m: int, process: int, build_factor: float) -> int:
    """An invented time with a fixed part, growth, a step above 128 rows and 1 % between processes."""
    base = 20_000 + 900 * m
    if experiment == "grouped_matmul" and m > STEP_AT:
        base *= 1.78
    if experiment == "dynamic_quant":
        base /= 6
    return round(base * SPEED.get(arm, 1.0) * build_factor * (1 + 0.005 * (process - 1)))


class Sweep:
    """Tables of one invented run of all four experiments, by contract name."""

    def __init__(
        self,
        *,
        build: str = "cpu-torch2.13.0",
        run_id: str = "01JINVENTED0000000000000A0",
        agent: str = "cpu",
        evidence: str = "measured",
        factors: Mapping[str, float] | None = None,
        processes: int = 3,
        experiments: Sequence[str] = tuple(AXIS),
    ) -> None:
        self.identity = {"run_id": run_id, "build": build, "build_id": f"id-{build}", "evidence": evidence}
        self.agent, self.processes, self.factors = agent, processes, dict(factors or {})
        self.experiments = experiments

    def tables(self) -> dict[str, pa.Table]:
        """``runs, captures, points, samples, alignments``."""
        points = [p for e in self.experiments for p in self._points(e)]
        captures = [
            self._capture(e, arm, p)
            for e in self.experiments
            for arm in ARMS[e]
            for p in range(self.processes)
        ]
        samples = [s for p in points for process in range(self.processes) for s in self._samples(p, process)]
        rows = {
            "runs": [self._run(e, points) for e in self.experiments],
            "captures": captures,
            "points": points,
            "samples": samples,
            "alignments": [self._alignment(p) for p in points],
        }
        return {name: from_rows(name, body) for name, body in rows.items()}

    def _run(self, experiment: str, points: Sequence[Row]) -> Row:
        own = [p for p in points if p["experiment"] == experiment]
        processes = self.processes * len(ARMS[experiment])
        return {
            **self.identity,
            "experiment": experiment,
            "build_components": [("torch", "2.13.0"), ("tilewatch", "0.1.0")],
            "agent": self.agent,
            "preset": "quick",
            "device": f"{self.agent}-0",
            "device_class": "Invented CPU, 2 cores" if self.agent == "cpu" else "Invented 910C",
            "host": "host",
            "plan_hash": "plan",
            "method_hash": "method",
            "method_version": 1,
            "lease_id": f"lease-{self.identity['run_id']}",
            "seed": 7,
            "status": "complete",
            "started_ns": 1_764_000_000_000_000_000,
            "ended_ns": 1_764_000_090_000_000_000,
            "planned_processes": processes,
            "accounted_processes": processes,
            "planned_points": len(own),
            "accounted_points": len(own),
            "missing_points": sum(p["status"] == "missing" for p in own),
            "sample_count": 0,
            "quarantined_rows": 0,
            "control_pairs": 24,
            "control_false_pairs": 0,
            "control_status": "ok",
            "operator_time_ns": 60_000_000_000,
            "wall_time_ns": 80_000_000_000,
            "command": f"tilewatch run {experiment} --preset quick --agent {self.agent}",
        }

    def _capture(self, experiment: str, arm: str, process: int) -> Row:
        return {
            **self.identity,
            "capture_id": self._capture_id(experiment, arm, process),
            "experiment": experiment,
            "arm": arm,
            "role": "main",
            "kind": "timing",
            "process_index": process,
            "block": process,
            "agent": self.agent,
            "status": "complete",
            "plan_hash": "plan",
            "method_hash": "method",
            "method_version": 1,
            "lease_id": f"lease-{self.identity['run_id']}",
            "seed": process,
            "host": "host",
            "device": f"{self.agent}-0",
            "device_class": "Invented CPU, 2 cores",
            "started_ns": 1,
            "ended_ns": 2,
            "sample_count": 3,
            "discarded_count": 0,
            "file_count": 6,
            "size_bytes": 1000,
            "raw_prefix": "raw/x",
            "environment": [("cpu_governor", "performance"), ("torch", "2.13.0")],
        }

    def _points(self, experiment: str) -> list[Row]:
        return [
            self._point(experiment, arm, linear, m)
            for linear in LINEARS[experiment]
            for arm in ARMS[experiment]
            for m in AXIS[experiment]
        ]

    def _point(self, experiment: str, arm: str, linear: tuple[str, int, int | None], m: int) -> Row:
        name, k, n = linear
        grouped = experiment == "grouped_matmul"
        untimed = experiment == "dynamic_quant" and arm == "tuple_input"
        lost = (experiment, arm, m) == ("quant_matmul", "bf16", 128) and name == "wkv"
        return {
            **self.identity,
            "experiment": experiment,
            "arm": arm,
            "point_id": f"{experiment}-{name}-{m}",
            "control": False,
            "axis": "m_e" if grouped else "m",
            "axis_value": m,
            "operator": "tuple_input" if untimed else experiment,
            "linear": name,
            "m": m * 4 if grouped else m,
            "m_executed": m * 4 if grouped else m,
            "k": k,
            "n": n,
            "launch_mode": "eager",
            "weight_format_requested": {"nd": "ND", "nz": "FRACTAL_NZ"}.get(arm),
            "weight_format": {"nd": "ND", "nz": "FRACTAL_NZ"}.get(arm),
            "allocation_regime": "padded" if grouped else None,
            "group_shape": "uniform" if grouped else None,
            "local_experts": 4 if grouped else None,
            "m_e": m if grouped else None,
            "dtype_x": "int8",
            "dtype_out": "bfloat16",
            "status": "missing" if lost else "present",
            "status_reason": "process killed at its time limit"
            if lost
            else "tuple_input"
            if untimed
            else None,
            "planned_processes": self.processes,
            "present_processes": 0 if lost else self.processes,
            "command": f"tilewatch run {experiment} --points {experiment}-{name}-{m} --arms {arm}",
        }

    def _samples(self, point: Row, process: int) -> list[Row]:
        if point["status"] == "missing":
            return []
        experiment, arm, m = point["experiment"], point["arm"], point["axis_value"]
        factor = self.factors.get(f"{experiment}/{arm}/{point['linear']}/{m}", self.factors.get("all", 1.0))
        value = duration_ns(experiment, arm, m, process, factor)
        untimed = point["operator"] == "tuple_input"
        durations = [None] if untimed else [value * 9, value - 3, value, value + 3]
        shared = {key: point[key] for key in (*self.identity, "experiment", "arm", "point_id")}
        return [
            {
                **shared,
                "capture_id": self._capture_id(experiment, arm, process),
                "process_index": process,
                "role": "main",
                "method_hash": "method",
                "sample": number,
                "position": number,
                "calls": 10,
                "duration_ns": duration,
                "null_reason": "tuple_input" if untimed else None,
                "warm_up": number == 0 and not untimed,
                "discarded": False,
                "throttled": False,
                "source_file": "samples.jsonl",
                "source_line": number + 1,
            }
            for number, duration in enumerate(durations)
        ]

    def _alignment(self, point: Row) -> Row:
        observed = self.agent != "cpu" and point["experiment"] == "grouped_matmul" and point["arm"] == "int8"
        above = point["axis_value"] > STEP_AT
        shared = {key: point[key] for key in (*self.identity, "experiment", "arm", "point_id")}
        return {
            **shared,
            "status": "missing" if point["status"] == "missing" else "aligned" if observed else "no_tiling",
            "reason": None if observed else "no tiling record",
            "calls": 5,
            "kernel_count": 5,
            "expected_kernel_count": 5,
            "tiling_key": "10002" if observed and above else "10001" if observed else None,
            "base_m": (256 if above else 128) if observed else None,
        }

    def _capture_id(self, experiment: str, arm: str, process: int) -> str:
        return f"{self.identity['run_id']}-{experiment}-{arm}-{process}"


def comparison_row(point: Row, baseline: str, candidate: str, ratio: float | None, verdict: str) -> Row:
    """One invented verdict about ``point``."""
    carried = (
        "experiment", "point_id", "evidence", "axis", "axis_value", "operator", "linear", "m", "m_executed",
        "k", "n", "launch_mode", "weight_format_requested", "allocation_regime", "local_experts", "group_shape",
        "m_e",
    )  # fmt: skip
    base_ns = float(duration_ns(point["experiment"], point["arm"], point["axis_value"], 1, 1.0))
    return {
        **{name: point[name] for name in carried},
        "comparison_id": "0123456789abcdef",
        "version": 1,
        "build": candidate,
        "compared_by": "build",
        "baseline": baseline,
        "candidate": candidate,
        "base_build_id": f"id-{baseline}",
        "candidate_build_id": f"id-{candidate}",
        "changed_components": ["cann: 8.2 -> 8.3"],
        "cause_separable": True,
        "base_arm": point["arm"],
        "candidate_arm": point["arm"],
        "metric": "duration_ns",
        "base_ns": base_ns,
        "candidate_ns": None if ratio is None else base_ns * ratio,
        "ratio": ratio,
        "ratio_low": None if ratio is None else ratio * 0.99,
        "ratio_high": None if ratio is None else ratio * 1.01,
        "p_value": 0.001 if ratio else None,
        "q_value": 0.004 if ratio else None,
        "base_processes": 3,
        "candidate_processes": 3,
        "floor_ratio": 1.02,
        "floor_reason": "2 % of an operator",
        "verdict": verdict,
        "verdict_reason": "differs by more than the floor" if verdict in ("SLOWER", "FASTER") else "as asked",
        "overrides": [],
        "control_status": "ok",
        "control_pairs": 24,
        "control_false_rate": 0.0,
        "between_leases": False,
        "base_run_ids": [f"run-{baseline}"],
        "candidate_run_ids": [f"run-{candidate}"],
        "method_hash": "method",
        "analysis_version": 1,
    }


@pytest.fixture(scope="session")
def cpu_sweep() -> dict[str, pa.Table]:
    """One run of the cpu agent, evidence measured."""
    return Sweep().tables()


@pytest.fixture(scope="session")
def two_simulated_builds() -> dict[str, pa.Table]:
    """Two simulated builds; the second is 20 % slower at one point and 5 % faster at another."""
    old = Sweep(build="cann-8.2", run_id="run-cann-8.2", agent="simulated", evidence="simulated")
    factors = {"quant_matmul/standalone/wq_a/64": 1.2, "quant_matmul/standalone/wkv/8": 0.95}
    new = Sweep(
        build="cann-8.3", run_id="run-cann-8.3", agent="simulated", evidence="simulated", factors=factors
    )
    before, after = old.tables(), new.tables()
    return {name: pa.concat_tables([before[name], after[name]]) for name in before}


@pytest.fixture(scope="session")
def comparison(two_simulated_builds) -> pa.Table:
    """Verdicts about ``two_simulated_builds``: one SLOWER, one FASTER, one MISSING, one UNDECIDED, the rest SAME."""
    points = [p for p in two_simulated_builds["points"].to_pylist() if p["build"] == "cann-8.3"]
    special = {
        ("quant_matmul-wq_a-64", "standalone"): (1.2, "SLOWER"),
        ("quant_matmul-wkv-8", "standalone"): (0.95, "FASTER"),
        ("quant_matmul-wkv-128", "bf16"): (None, "MISSING"),
        ("weight_format-wq_a-2", "nd"): (1.03, "UNDECIDED"),
    }
    rows = [
        comparison_row(p, "cann-8.2", "cann-8.3", *special.get((p["point_id"], p["arm"]), (1.001, "SAME")))
        for p in points
        if p["operator"] != "tuple_input"
    ]
    return from_rows("comparisons", rows)


@pytest.fixture(scope="session")
def cliffs() -> pa.Table:
    """The invented step of grouped_matmul in the newer build, explained by its tiling."""
    row = {
        "cliff_id": "c1", "build": "cann-8.3", "build_id": "id-cann-8.3", "run_id": "run-cann-8.3",
        "experiment": "grouped_matmul", "arm": "int8", "curve": "w13 K 4096 N 4096 padded uniform",
        "axis": "m_e", "evidence": "simulated", "before": 128, "after": 129, "before_ns": 135_200.0,
        "after_ns": 242_258.0, "ratio": 1.79, "trend_ratio": 1.01, "class": "step", "explanation": "explained",
        "explanation_evidence": "observed", "changed_fields": ["base_m: 128 -> 256"],
        "sentence": "M_e 128→129: ×1.79; base_m 128→256, blocks per expert stay 1",
        "measure_next": [130], "analysis_version": 1,
    }  # fmt: skip
    return from_rows("cliffs", [row])


@pytest.fixture(scope="session")
def ledger() -> pa.Table:
    """Gains of INT8 over BF16 that change sign twice along M."""
    outcomes = (
        "bf16_wins",
        "bf16_wins",
        "no_difference",
        "int8_wins",
        "int8_wins",
        "no_difference",
        "bf16_wins",
    )
    net = {"bf16_wins": -4_000.0, "no_difference": 200.0, "int8_wins": 6_000.0}
    rows = [
        {
            "build": "cann-8.3", "build_id": "id-cann-8.3", "run_id": "run-cann-8.3", "evidence": "simulated",
            "linear": linear, "input_kind": "standalone", "launch_mode": "eager", "allocation_regime": "",
            "group_shape": "", "m": 2**power, "k": 4096, "n": 1024, "t_bf16_ns": 30_000.0,
            "t_int8_ns": 30_000.0 - net[outcome], "t_dynamic_quant_ns": 3_000.0, "t_other_ns": 0.0,
            "t_other_parts": [("scale", 0.0)], "net_ns": net[outcome], "net_low_ns": net[outcome] - 500,
            "net_high_ns": net[outcome] + 500, "outcome": outcome, "break_even": "INT8 wins for M 8…16",
            "analysis_version": 1,
        }
        for linear in ("wq_a", "wkv")
        for power, outcome in enumerate(outcomes)
    ]  # fmt: skip
    return from_rows("ledger", rows)
