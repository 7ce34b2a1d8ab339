"""Predicted against observed core counts of a profile's own kernels, by SoC and CANN of the profile.

The first check of the predictions on devices that we do not own: every DynamicQuant, QuantBatchMatmul and
GroupedMatmul row whose shapes say the call, as a share of agreement and as findings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewatch.tasks.analyse.profiles.linears import shape_of
from tilewatch.tasks.analyse.profiles.units import Program
from tilewatch.tasks.predict.calls import (
    ND,
    NZ,
    DynamicQuantCall,
    GroupedMatmulCall,
    OperatorCall,
    QuantMatmulCall,
)
from tilewatch.tasks.predict.environment import (
    Platform,
    cann_version,
    cann_version_names,
    platform,
    platform_names,
)
from tilewatch.tasks.predict.errors import OutOfScope, PredictError
from tilewatch.tasks.predict.predict import predict

_FLOATS = {"DT_BF16": "bfloat16", "BF16": "bfloat16", "BFLOAT16": "bfloat16", "FLOAT16": "float16"}
_QUANT = re.compile(r"QuantBatchMat[Mm]ul(V\d+)?")
_DYNAMIC = re.compile(r"DynamicQuant(V2)?")


@dataclass(frozen=True)
class CoreRow:
    """One kernel group: ``rows`` kernels ran on ``observed`` cores, ``predicted`` says the host code.

    ``predicted`` is None where ``why`` says that nothing is; ``finding`` is a sentence where the two differ,
    or where another release's host code would use more cores.
    """

    op: str
    call: str
    rows: int
    observed: int
    predicted: int | None
    cores: int
    why: str
    finding: str


@dataclass(frozen=True)
class CoreCheck:
    """All rows against one SoC and CANN; ``sentence`` is the agreement, or why nothing could be checked."""

    soc: str | None
    cann: str | None
    rows: tuple[CoreRow, ...]
    sentence: str

    @property
    def agreement(self) -> float | None:
        """Share of the predicted kernel rows that ran on as many cores as predicted; None without any."""
        compared = [row for row in self.rows if row.predicted is not None]
        total = sum(row.rows for row in compared)
        agreeing = sum(row.rows for row in compared if row.observed == row.predicted)
        return agreeing / total if total else None


def check_cores(side: Program, *, soc: str | None = None, cann: str | None = None) -> CoreCheck:
    """Compare every kernel group of one side with its prediction.

    SoC and CANN are those of the profile unless given; a profile that states neither core count nor SoC needs
    ``soc``, since 910B and 910C carry one number there. Raises PredictError for a name that is not known.
    """
    facts: Mapping[str, Any] = side.profiles[0].capture.facts if side.profiles else {}
    release = cann or _text(facts.get("cann_version"))
    device, why = _platform(facts, soc)
    if device is None or release is None:
        missing = why if device is None else "the profile does not state its CANN version; --cann says it"
        return CoreCheck(soc, release, (), missing)
    rows = [
        row
        for index, group in enumerate(side.groups)
        if (row := _row(group, _count(side, index), device, release)) is not None
    ]
    check = CoreCheck(device.name, release, tuple(rows), "")
    return CoreCheck(device.name, release, tuple(rows), _sentence(check))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _count(side: Program, index: int) -> int:
    steps = sum(len(profile.wall) for profile in side.profiles)
    return round(float(side.calls[index]) * steps)


def _platform(facts: Mapping[str, Any], soc: str | None) -> tuple[Platform | None, str]:
    """The SoC by name, else the one class of platforms that has the cores the profile states."""
    if soc is not None:
        return platform(soc), ""
    counts = facts.get("aic_count"), facts.get("aiv_count")
    fitting = [
        known
        for known in map(platform, platform_names())
        if (known.cube_cores, known.vector_cores) == counts
        and (facts.get("chip") is None or known.npu_arch == ("3510" if "950" in facts["chip"] else "2201"))
    ]
    if not fitting:
        return None, "the profile does not state how many cores its SoC has; --soc says which it is"
    alike = {(known.npu_arch, known.l1_bytes, known.ub_bytes, known.l2_bytes) for known in fitting}
    if len(alike) > 1:
        names = ", ".join(known.name for known in fitting)
        return None, f"several SoCs have {counts[0]} cube cores: --soc says which of {names} it is"
    return fitting[0], ""


def _row(group: dict[str, Any], rows: int, device: Platform, release: str) -> CoreRow | None:
    if not rows or not group["block_dim"]:
        return None
    call = call_of(group)
    if call is None:
        return None
    vector = isinstance(call, DynamicQuantCall)
    cores = device.vector_cores if vector else device.cube_cores
    predicted, why = _predicted(call, device, release)
    finding = _finding(group["op"], call, group["block_dim"], predicted, device, release)
    return CoreRow(group["op"], _words(call), rows, group["block_dim"], predicted, cores, why, finding)


def _predicted(call: OperatorCall, device: Platform, release: str) -> tuple[int | None, str]:
    try:
        record = predict(call, device, cann_version(release, device.npu_arch))
    except (OutOfScope, PredictError) as error:
        return None, str(error)
    if record.block_dim is None:
        return None, record.unknown_reason
    return record.block_dim, record.rule


def _finding(
    op: str, call: OperatorCall, observed: int, predicted: int | None, device: Platform, release: str
) -> str:
    kind = "vector" if isinstance(call, DynamicQuantCall) else "cube"
    cores = device.vector_cores if kind == "vector" else device.cube_cores
    ran = f"this {op} ({_words(call)}) ran on {observed} of {cores} {kind} cores"
    if predicted is not None and predicted != observed:
        return f"{ran}; {predicted} were predicted for CANN {release}"
    better = [
        (name, count)
        for name in cann_version_names()
        if name != release and (count := _predicted(call, device, name)[0]) is not None and count > observed
    ]
    if not better:
        return ""
    name, count = max(better, key=lambda pair: pair[1])
    return f"{ran}; CANN {name}'s host code would use {count} (predicted)"


def call_of(group: dict[str, Any]) -> OperatorCall | None:
    """The operator call that a kernel group's shapes, dtypes and formats describe; None for other operators.

    A QuantBatchMatmul's weight is taken as transposed where its ND shape is [N, K] or, of FRACTAL_NZ blocks,
    [K/32, N/16, 16, 32].
    """
    shapes, dtypes, formats = (group[key] or [] for key in ("input_shapes", "input_dtypes", "input_formats"))
    if _DYNAMIC.fullmatch(group["op"]):
        if not shapes or not shapes[0] or not dtypes or dtypes[0].upper() not in _FLOATS:
            return None
        rows = 1
        for size in shapes[0][:-1]:
            rows *= size
        return DynamicQuantCall(
            rows, shapes[0][-1], _FLOATS[dtypes[0].upper()], smooth=len(shapes) > 1 and bool(shapes[1])
        )
    linear = shape_of(group)
    if linear is None or len(formats) < 2 or not dtypes or dtypes[0].upper() not in ("INT8", "DT_INT8"):
        return None
    form = NZ if formats[1].startswith("FRACTAL_NZ") else ND
    flipped = _transposed(shapes[1], linear.k, linear.n, form)
    if _QUANT.fullmatch(group["op"]):
        return QuantMatmulCall(linear.m, linear.k, linear.n, form, transpose_w=flipped)
    if group["op"] == "GroupedMatmul" and linear.experts:
        return GroupedMatmulCall(
            linear.m, linear.k, linear.n, linear.experts, form, transpose_w=_transposed(
                shapes[1][1:], linear.k, linear.n, form
            )
        )  # fmt: skip
    return None


def _transposed(weight: Sequence[int], k: int, n: int, form: str) -> bool:
    if form == NZ and len(weight) == 4:
        return weight[0] * 32 == k and weight[1] * 16 == n and not (weight[0] * 32 == n and k == n)
    return list(weight[-2:]) == [n, k] and n != k


def _words(call: OperatorCall) -> str:
    parts = [f"M {call.m}", f"K {call.k}"]
    if not isinstance(call, DynamicQuantCall):
        parts.append(f"N {call.n}")
    return ", ".join(parts)


def _sentence(check: CoreCheck) -> str:
    share = check.agreement
    if share is None:
        return f"{check.soc}, CANN {check.cann}: no kernel row that is predicted"
    compared = sum(row.rows for row in check.rows if row.predicted is not None)
    return f"{check.soc}, CANN {check.cann}: {share:.1%} of {compared} kernel rows ran on the cores predicted"
