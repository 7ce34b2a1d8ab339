"""Contract tables of small invented sweeps: every number follows from a formula, nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tilewatch.data_contracts import contract, from_rows

Row = dict[str, Any]
M = tuple(2**power for power in range(8))
AXIS = {
    "dynamic_quant": (1, 4, 16, 64),
    "quant_matmul": M,
    "weight_format": M,
    "grouped_matmul": (1, 8, 64, 96, 127, 128, 129, 160, 256),
}
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
SPEED = {"tuple_input": 0.8, "bf16": 1.3, "nd": 1.25}
FORMAT = {"nd": "ND", "nz": "FRACTAL_NZ"}
GROUPED = {"allocation_regime": "padded", "group_shape": "uniform", "local_experts": 4}
STEP_AT = 128  # the invented cliff of grouped_matmul


def duration_ns(experiment: str, arm: str, m: int, process: int = 1, factor: float = 1.0) -> int:
    """An invented time: a fixed part, growth, a step above 128 rows and 0.5 % from process to process."""
    base = float(20_000 + 900 * m)
    if experiment == "grouped_matmul" and m > STEP_AT:
        base *= 1.78
    if experiment == "dynamic_quant":
        base /= 6
    return round(base * SPEED.get(arm, 1.0) * factor * (1 + 0.005 * (process - 1)))


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """``rows`` as a contract table; a required column that they leave out gets a neutral value."""
    neutral = {c.name: _neutral(c.type) for c in contract(name).columns if c.required}
    return from_rows(name, [{**neutral, **row} for row in rows])


def _neutral(kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return False
    return "invented" if pa.types.is_string(kind) else [] if pa.types.is_nested(kind) else 1


class Sweep:
    """Tables of one invented run of all four experiments, by contract name."""

    def __init__(self, build: str, run_id: str, agent: str, factors: Mapping[str, float] | None = None):
        evidence = "measured" if agent == "cpu" else "simulated"
        self.identity = {"run_id": run_id, "build": build, "build_id": f"id-{build}", "evidence": evidence}
        self.agent, self.factors = agent, factors or {}

    def tables(self) -> dict[str, pa.Table]:
        """``runs, captures, points, samples, alignments``."""
        points = [
            self._point(experiment, arm, linear, m)
            for experiment in AXIS
            for linear in LINEARS[experiment]
            for arm in ARMS[experiment]
            for m in AXIS[experiment]
        ]
        rows = {
            "runs": [self._run(experiment, points) for experiment in AXIS],
            "captures": [self._capture(e, arm, n) for e in AXIS for arm in ARMS[e] for n in range(3)],
            "points": points,
            "samples": [sample for p in points for n in range(3) for sample in self._samples(p, n)],
            "alignments": [self._alignment(point) for point in points],
        }
        return {name: table(name, body) for name, body in rows.items()}

    def _run(self, experiment: str, points: Sequence[Row]) -> Row:
        own = [p for p in points if p["experiment"] == experiment]
        return {
            **self.identity,
            "experiment": experiment,
            "build_components": [("torch", "2.13.0"), ("cann", self.identity["build"])],
            "agent": self.agent,
            "preset": "quick",
            "device": f"{self.agent}-0",
            "device_class": "Invented CPU, 2 cores" if self.agent == "cpu" else "Invented 910C",
            "status": "complete",
            "started_ns": 1_764_000_000_000_000_000,
            "ended_ns": 1_764_000_090_000_000_000,
            "planned_processes": 3 * len(ARMS[experiment]),
            "planned_points": len(own),
            "missing_points": sum(p["status"] == "missing" for p in own),
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
            "agent": self.agent,
            "status": "complete",
            "environment": [("cpu_governor", "performance"), ("torch", "2.13.0")],
        }

    def _point(self, experiment: str, arm: str, linear: tuple[str, int, int | None], m: int) -> Row:
        name, k, n = linear
        grouped = experiment == "grouped_matmul"
        untimed = experiment == "dynamic_quant" and arm == "tuple_input"
        lost = (experiment, arm, name, m) == ("quant_matmul", "bf16", "wkv", 128)
        reason = "process killed at its time limit" if lost else "tuple_input" if untimed else None
        return {
            **self.identity,
            "experiment": experiment,
            "arm": arm,
            "point_id": f"{experiment}-{name}-{m}",
            "axis": "m_e" if grouped else "m",
            "axis_value": m,
            "operator": "tuple_input" if untimed else experiment,
            "linear": name,
            "m": m * 4 if grouped else m,
            "m_executed": m * 4 if grouped else m,
            "k": k,
            "n": n,
            "launch_mode": "eager",
            "weight_format_requested": FORMAT.get(arm),
            "weight_format": FORMAT.get(arm),
            **({**GROUPED, "m_e": m} if grouped else {}),
            "status": "missing" if lost else "present",
            "status_reason": reason,
            "planned_processes": 3,
            "present_processes": 0 if lost else 3,
            "command": f"tilewatch run {experiment} --points {experiment}-{name}-{m} --arms {arm}",
        }

    def _samples(self, point: Row, process: int) -> list[Row]:
        if point["status"] == "missing":
            return []
        experiment, arm, m = point["experiment"], point["arm"], point["axis_value"]
        factor = self.factors.get(f"{point['point_id']}/{arm}", 1.0)
        value = duration_ns(experiment, arm, m, process, factor)
        untimed = point["operator"] == "tuple_input"
        return [
            {
                **{key: point[key] for key in (*self.identity, "experiment", "arm", "point_id")},
                "capture_id": self._capture_id(experiment, arm, process),
                "process_index": process,
                "role": "main",
                "sample": number,
                "duration_ns": duration,
                "null_reason": "tuple_input" if untimed else None,
                "warm_up": number == 0 and not untimed,
            }
            for number, duration in enumerate([None] if untimed else [value * 9, value - 3, value, value + 3])
        ]

    def _alignment(self, point: Row) -> Row:
        observed = self.agent != "cpu" and point["experiment"] == "grouped_matmul" and point["arm"] == "int8"
        above = point["axis_value"] > STEP_AT
        return {
            **{key: point[key] for key in (*self.identity, "experiment", "arm", "point_id")},
            "status": "missing" if point["status"] == "missing" else "aligned" if observed else "no_tiling",
            "tiling_key": ("10002" if above else "10001") if observed else None,
            "base_m": (256 if above else 128) if observed else None,
        }

    def _capture_id(self, experiment: str, arm: str, process: int) -> str:
        return f"{self.identity['run_id']}-{experiment}-{arm}-{process}"


@pytest.fixture(scope="session")
def cpu_sweep() -> dict[str, pa.Table]:
    """One run of the cpu agent, evidence measured."""
    return Sweep("cpu-torch2.13.0", "run-cpu", "cpu").tables()


@pytest.fixture(scope="session")
def two_simulated_builds() -> dict[str, pa.Table]:
    """Two simulated builds; the second is 20 % slower at one point and 5 % faster at another."""
    factors = {"quant_matmul-wq_a-64/standalone": 1.2, "quant_matmul-wkv-8/standalone": 0.95}
    old = Sweep("cann-8.2", "run-cann-8.2", "simulated").tables()
    new = Sweep("cann-8.3", "run-cann-8.3", "simulated", factors).tables()
    return {name: pa.concat_tables([old[name], new[name]]) for name in old}


VERDICTS: dict[tuple[str, str], tuple[float | None, str]] = {
    ("quant_matmul-wq_a-64", "standalone"): (1.2, "SLOWER"),
    ("quant_matmul-wkv-8", "standalone"): (0.95, "FASTER"),
    ("quant_matmul-wkv-128", "bf16"): (None, "MISSING"),
    ("weight_format-wq_a-2", "nd"): (1.03, "UNDECIDED"),
}


@pytest.fixture(scope="session")
def comparison(two_simulated_builds) -> pa.Table:
    """``two_simulated_builds`` judged as in VERDICTS; every other point is SAME."""
    known = set(contract("comparisons").schema.names)
    rows = []
    for point in two_simulated_builds["points"].to_pylist():
        if point["build"] == "cann-8.2" or point["operator"] == "tuple_input":
            continue
        ratio, verdict = VERDICTS.get((point["point_id"], point["arm"]), (1.001, "SAME"))
        base_ns = float(duration_ns(point["experiment"], point["arm"], point["axis_value"]))
        row = {
            "compared_by": "build",
            "baseline": "cann-8.2",
            "candidate": "cann-8.3",
            "base_build_id": "id-cann-8.2",
            "candidate_build_id": "id-cann-8.3",
            "base_run_ids": ["run-cann-8.2"],
            "candidate_run_ids": ["run-cann-8.3"],
            "changed_components": ["cann: 8.2 -> 8.3"],
            "cause_separable": True,
            "base_arm": point["arm"],
            "candidate_arm": point["arm"],
            "metric": "duration_ns",
            "base_ns": base_ns,
            "base_processes": 3,
            "candidate_processes": 3,
            "floor_ratio": 1.02,
            "verdict": verdict,
            "control_status": "ok",
            "control_pairs": 24,
            "control_false_rate": 0.0,
        }
        if ratio:
            row |= {"ratio": ratio, "ratio_low": ratio * 0.99, "ratio_high": ratio * 1.01, "q_value": 0.004}
            row["candidate_ns"] = base_ns * ratio
        rows.append({name: value for name, value in point.items() if name in known} | row)
    return table("comparisons", rows)


WHY = ("step", "explained", "observed")
STEP = (128, 129, 135_200.0, 242_258.0, 1.79)


@pytest.fixture(scope="session")
def cliffs() -> pa.Table:
    """The invented step of grouped_matmul in the newer build, explained by its tiling."""
    row = {
        **dict.fromkeys(("build", "build_id", "run_id"), "cann-8.3"),
        **dict(zip(("before", "after", "before_ns", "after_ns", "ratio"), STEP, strict=True)),
        "experiment": "grouped_matmul",
        "arm": "int8",
        "curve": "grouped_matmul w13 K4096 N4096 eager padded uniform 4 experts",
        "axis": "m_e",
        "evidence": "simulated",
        **dict(zip(("class", "explanation", "explanation_evidence"), WHY, strict=True)),
        "sentence": "M_e 128→129: ×1.79; base_m 128→256",
    }
    return table("cliffs", [row])


OUTCOMES = {-4_000.0: "bf16_wins", 200.0: "no_difference", 6_000.0: "int8_wins", None: "unknown"}


@pytest.fixture(scope="session")
def ledger() -> pa.Table:
    """Gains of INT8 over BF16 that change sign twice along M."""
    net_ns = (-4_000.0, -4_000.0, 200.0, 6_000.0, 6_000.0, 200.0, -4_000.0, None)
    rows = [
        {
            "build": "cann-8.3",
            "evidence": "simulated",
            "linear": linear,
            "input_kind": "standalone",
            "launch_mode": "eager",
            **dict.fromkeys(("allocation_regime", "group_shape"), ""),
            **dict(zip(("m", "k", "n"), (m, 4096, 1024), strict=True)),
            "t_bf16_ns": 30_000.0,
            "t_int8_ns": 27_000.0 - (net or 0),
            "t_dynamic_quant_ns": 3_000.0,
            **({"t_other_reason": "fused producer not measured"} if net is None else {"t_other_ns": 0.0}),
            **({} if net is None else {"net_ns": net, "net_low_ns": net - 500, "net_high_ns": net + 500}),
            "outcome": OUTCOMES[net],
            "break_even": "INT8 wins for M 8…16",
        }
        for linear in ("wq_a", "wkv")
        for m, net in zip(M, net_ns, strict=True)
    ]
    return table("ledger", rows)
