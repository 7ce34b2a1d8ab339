"""Arguments follow the schema that the installed torch_npu registers: every recorded one is tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

GROUPED = "npu_grouped_matmul"
WANTED = {
    "split_item": 2,
    "group_type": 0,
    "group_list_type": 1,
    "group_list": torch.tensor([1]),
    "output_dtype": torch.bfloat16,
    "scale": [torch.ones(1)],
    "per_token_scale": [torch.ones(1)],
}


@pytest.fixture(scope="module")
def recorded(shared: Path) -> dict[tuple[str, str], list[Any]]:
    """Parsed schemas by operator and op-plugin branch."""
    found: dict[tuple[str, str], list[Any]] = {}
    for line in (shared / "facts/op_schemas.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["schema"] and row["op"] in (GROUPED, "npu_quant_matmul"):
            schema = torch._C.parse_schema(f"npu::{row['schema']}")
            found.setdefault((row["op"], row["from_op_plugin_branch"]), []).append(schema)
    return found


@pytest.fixture(scope="module")
def schemas(program: Path) -> Any:
    import schemas as module  # type: ignore[import-not-found]

    return module


def newest(recorded: dict[tuple[str, str], list[Any]], operator: str, branch: str) -> Any:
    return recorded[operator, branch][-1]


@pytest.mark.parametrize(
    ("branch", "value"), [("7.1.0", torch.bfloat16), ("7.2.0", torch.bfloat16), ("26.0.0", 15)]
)
def test_the_output_dtype_is_a_scalar_type_up_to_7_and_an_int_from_26(
    recorded: Any, schemas: Any, branch: str, value: object
) -> None:
    fitted = schemas.fitted(newest(recorded, GROUPED, branch), {**WANTED, "tuning_config": [8]})
    assert fitted["output_dtype"] == value and fitted["tuning_config"] == [8]
    assert fitted["group_list"] is WANTED["group_list"]


@pytest.mark.parametrize(
    ("branch", "extra", "missing"),
    [
        ("7.0.0", {"tuning_config": [8]}, "tuning_config"),
        ("6.0.0", {}, "group_list_type, group_type, per_token_scale"),
    ],
)
def test_a_call_that_the_installed_operator_cannot_make_is_refused_not_shortened(
    recorded: Any, schemas: Any, branch: str, extra: dict[str, Any], missing: str
) -> None:
    with pytest.raises(schemas.SchemaMismatch, match=f"no argument {missing}$"):
        schemas.fitted(newest(recorded, GROUPED, branch), {**WANTED, **extra})


def test_the_hint_is_left_out_where_no_arm_asks_for_it(recorded: Any, schemas: Any) -> None:
    assert "tuning_config" not in schemas.fitted(newest(recorded, GROUPED, "7.0.0"), WANTED)


def test_a_torch_dtype_is_taken_by_the_dispatcher_where_serving_passes_it(
    recorded: Any, schemas: Any
) -> None:
    for (operator, _), found in recorded.items():
        for schema in found:
            kinds = {a.name: str(a.real_type) for a in schema.arguments}
            if operator == "npu_quant_matmul" and "str" not in kinds["output_dtype"]:
                fitted = schemas.fitted(schema, {"output_dtype": torch.bfloat16})
                assert fitted["output_dtype"] in (torch.bfloat16, 15)
