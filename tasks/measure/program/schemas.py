"""Arguments as the installed schema takes them: torch_npu 2.7 to 2.14 differ in names and types.

``output_dtype`` is a ScalarType up to op-plugin 7.x and an int from 26.0 on; ``group_list_type`` and
``per_token_scale`` come with 7.0, ``tuning_config`` with 7.1. What an operator lacks is refused, never left
out: a call without it would measure something else.
"""

from __future__ import annotations

from typing import Any, Dict

import torch

SCALAR_TYPES = {torch.int8: 1, torch.float16: 5, torch.bfloat16: 15}
"""Codes of c10::ScalarType, which an ``int? output_dtype`` means."""


class SchemaMismatch(RuntimeError):
    """The installed operator has no such argument; the message names both."""


def installed_schema(operator: str) -> Any:
    """The schema that torch has registered for the default overload of ``operator``, ``npu::name``."""
    namespace, name = operator.split("::")
    return getattr(getattr(torch.ops, namespace), name).default._schema


def fitted(schema: Any, wanted: Dict[str, Any]) -> Dict[str, Any]:
    """``wanted`` in the types of ``schema``. Raises SchemaMismatch for a name that the operator lacks."""
    declared = {a.name: str(getattr(a, "real_type", a.type)) for a in schema.arguments}
    if missing := sorted(name for name in wanted if name not in declared):
        raise SchemaMismatch(f"{schema.name} of the installed torch_npu has no argument {', '.join(missing)}")
    return {name: _as(declared[name], value) for name, value in wanted.items()}


def _as(kind: str, value: Any) -> Any:
    """A torch.dtype becomes its code where an int is declared."""
    return SCALAR_TYPES[value] if isinstance(value, torch.dtype) and "ScalarType" not in kind else value
