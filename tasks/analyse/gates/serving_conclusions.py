"""Everything that is concluded from the tables of one run of experiment E, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import combinations
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.comparison.serving_compare import ServingRequest, compare_serving_arms
from tilewatch.tasks.analyse.comparison.serving_values import TIMING, ServingTables
from tilewatch.tasks.analyse.gates.gates import Gate, gate_table
from tilewatch.tasks.analyse.savings.phases import phase_costs
from tilewatch.tasks.analyse.savings.serving_savings import serving_savings

CONCLUSIONS = ("phase_costs", "serving_comparisons", "gates", "serving_savings")
"""Tables that ``serving_conclusions`` gives, each by its contract."""


def serving_conclusions(
    tables: Mapping[str, pa.Table],
    arms: Sequence[str],
    gates: Sequence[Mapping[str, Any]] = (),
    *,
    ledger: pa.Table | None = None,
    request: ServingRequest | None = None,
) -> dict[str, pa.Table]:
    """Phase costs, arms compared, gates, and the ledger against TPOT of one run: CONCLUSIONS by name.

    ``tables`` holds launches, requests and serving_metrics of one run, and kernels and stage_steps of its
    profiled launches (may be absent). ``arms`` are in the order of the experiment file: each is the candidate
    against every later one. ``gates`` are those of the plan. ``ledger`` has rows of the same build and
    device. Raises AnalysisError where the tables hold more than one build, or for a gate that cannot fail.
    """
    serving = ServingTables(**{f.name: tables[f.name] for f in fields(ServingTables)})
    given = {**tables, "ledger": ledger} if ledger is not None else tables
    kernels, steps, known = (
        given[name] if name in given else schema(name).empty_table()
        for name in ("kernels", "stage_steps", "ledger")
    )
    costs = phase_costs(kernels, steps)
    comparisons = _compared(serving, arms, request)
    return {
        "phase_costs": costs,
        "serving_comparisons": comparisons,
        "gates": gate_table(serving, [_gate(gate) for gate in gates]),
        "serving_savings": serving_savings(serving.launches, comparisons, costs, kernels, steps, known),
    }


def _compared(serving: ServingTables, arms: Sequence[str], request: ServingRequest | None) -> pa.Table:
    launched = {
        row["arm"]: row["build"]
        for row in serving.launches.select(["arm", "build", "role"]).to_pylist()
        if row["role"] == TIMING
    }
    present = [arm for arm in arms if arm in launched]
    if len(present) < 2:
        return schema("serving_comparisons").empty_table()
    label = launched[present[0]]
    pairs = [(base, candidate) for candidate, base in combinations(present, 2)]
    return compare_serving_arms(serving, pairs, request or ServingRequest(label, label))


def _gate(stated: Mapping[str, Any]) -> Gate:
    return Gate(**{f.name: stated[f.name] for f in fields(Gate) if f.name in stated})
