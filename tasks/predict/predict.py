"""The entry: one operator call, or one axis of it, to the branch of its operator and architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from tilewatch.tasks.predict.arithmetic.integers import IntArray, ints
from tilewatch.tasks.predict.calls import (
    DynamicQuantCall,
    FinalizeRoutingCall,
    GroupedMatmulCall,
    OperatorCall,
    QuantMatmulCall,
    SwigluQuantCall,
    points,
)
from tilewatch.tasks.predict.dynamic_quant import (
    dav_2201 as dynamic_quant_dav_2201,
)
from tilewatch.tasks.predict.dynamic_quant import (
    dav_3510 as dynamic_quant_dav_3510,
)
from tilewatch.tasks.predict.environment import DAV_2201, DAV_3510, CannVersion, Platform
from tilewatch.tasks.predict.errors import OutOfScope, PredictError
from tilewatch.tasks.predict.grouped_matmul import (
    dav_2201 as grouped_matmul_dav_2201,
)
from tilewatch.tasks.predict.grouped_matmul import (
    fused_dav_2201 as grouped_matmul_fused_dav_2201,
)
from tilewatch.tasks.predict.quant_matmul.dav_2201 import tile as quant_matmul_dav_2201
from tilewatch.tasks.predict.quant_matmul.dav_3510 import tile as quant_matmul_dav_3510
from tilewatch.tasks.predict.records import Decisions, TilingRecord, record

Branch = Callable[[Any, Any, Platform, CannVersion], Decisions]

BRANCHES: dict[tuple[type[OperatorCall], str], Branch] = {
    (DynamicQuantCall, DAV_2201): dynamic_quant_dav_2201.tile,
    (DynamicQuantCall, DAV_3510): dynamic_quant_dav_3510.tile,
    (QuantMatmulCall, DAV_2201): quant_matmul_dav_2201.tile,
    (QuantMatmulCall, DAV_3510): quant_matmul_dav_3510.tile,
    (GroupedMatmulCall, DAV_2201): grouped_matmul_dav_2201.tile,
    (SwigluQuantCall, DAV_2201): grouped_matmul_fused_dav_2201.swiglu_quant,
    (FinalizeRoutingCall, DAV_2201): grouped_matmul_fused_dav_2201.finalize_routing,
}


def predict_axis(
    call: OperatorCall, axis: str, values: IntArray, platform: Platform, cann: CannVersion
) -> Decisions:
    """Tiling of ``call`` with ``axis`` at each of ``values``.

    Raises PredictError for a value that breaks a rule, OutOfScope where no rules are restated.
    """
    branch = BRANCHES.get((type(call), platform.npu_arch))
    if branch is None:
        where = f"NpuArch {platform.npu_arch} ({platform.name})"
        raise OutOfScope("soc", f"{call.operation} is not restated for {where}")
    return branch(call, points(call, axis, values), platform, cann)


def call_named(operation: str, given: Mapping[str, Any]) -> OperatorCall:
    """The call of ``operation`` with ``given`` fields. Raises PredictError for a name that is not known."""
    classes = {kind.operation: kind for kind, _ in BRANCHES}
    if operation not in classes:
        raise PredictError("operation", f"{operation!r}: known are {', '.join(sorted(classes))}")
    kind = classes[operation]
    known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}
    if unknown := sorted(set(given) - set(known)):
        raise PredictError(unknown[0], f"no field of {operation}; known are {', '.join(known)}")
    if lacking := [name for name, needed in known.items() if needed and name not in given]:
        raise PredictError(lacking[0], f"{operation} needs it")
    return kind(**given)


def predict(call: OperatorCall, platform: Platform, cann: CannVersion) -> TilingRecord:
    """Tiling of one call, with the branch taken and the rule that decided it."""
    return record(op_type(call, platform), predict_axis(call, "m", ints([call.m]), platform, cann))


def op_type(call: OperatorCall, platform: Platform) -> str:
    """Operator type the framework launches; an offset output, or NpuArch 3510, makes DynamicQuant its V2."""
    if isinstance(call, DynamicQuantCall) and (call.asymmetric or platform.npu_arch == DAV_3510):
        return f"{call.op_type}V2"
    return call.op_type
