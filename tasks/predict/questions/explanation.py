"""Why one call is tiled as it is: the path through the host code, step by step, by what was known where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tilewatch.tasks.predict.calls import OperatorCall
from tilewatch.tasks.predict.environment import CannVersion, Platform, release
from tilewatch.tasks.predict.predict import predict
from tilewatch.tasks.predict.questions.releases import package_of
from tilewatch.tasks.predict.sources import source_of

_OUTCOME = (
    "tiling_key", "block_dim", "base_m", "base_n", "base_k", "m_cnt", "n_cnt", "rounds", "single_n",
    "stream_k", "aiv_aic_ratio", "ub_template", "workspace_bytes",
)  # fmt: skip
_CODES = ("dynamic_quant", "quant_matmul", "grouped_matmul")
_PLATFORM = ("npu_arch", "cube_cores", "vector_cores", "ub_bytes", "l1_bytes", "l2_bytes")


@dataclass(frozen=True)
class Step:
    """One step of a decision path: what is looked at, and what it was."""

    step: str
    value: str


def explain(call: OperatorCall, platform: Platform, cann: CannVersion) -> list[Step]:
    """The decision path of one call on one release. Raises PredictError as predict does."""
    record = predict(call, platform, cann)
    place = source_of(record.op_type, platform.npu_arch, record.branch)
    steps = [
        Step("operator", record.op_type),
        Step("call", _words(asdict(call))),
        Step("platform", f"{platform.name}: {_words({n: getattr(platform, n) for n in _PLATFORM})}"),
        Step("release", f"{cann.name}, of {package_of(call)}"),
        *_proof(call, platform, cann),
        *(Step(f"switch {name}", str(value)) for name, value in _switches(call, cann)),
        Step("branch", record.branch),
        Step("rule", record.rule),
        Step("source file", place.file),
        Step("function", place.function),
    ]
    steps += [Step(name, str(value)) for name in _OUTCOME if (value := getattr(record, name)) is not None]
    steps += [Step(f"tiling data {name}", str(value)) for name, value in record.fields.items()]
    return [*steps, Step("not decided by shape", record.unknown_reason)]


def _proof(call: OperatorCall, platform: Platform, cann: CannVersion) -> list[Step]:
    """How an alias is known to run the code it is predicted by; none for a row of the table or a mix."""
    if "," in cann.name:
        return []
    why = release(cann.name, platform.npu_arch).proof.get(package_of(call))
    return [Step("proof of the alias", why)] if why else []


def _switches(call: OperatorCall, cann: CannVersion) -> list[tuple[str, object]]:
    """The switches of the release that the operator's code reads."""
    prefix = next(name for name in _CODES if call.operation.startswith(name))
    return [(name, value) for name, value in asdict(cann).items() if name.startswith(prefix)]


def _words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value not in (None, False))
