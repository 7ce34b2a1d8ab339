"""Identities: a value's canonical JSON, hashed, so that the same thing has the same name everywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(value: Any) -> bytes:
    """Canonical JSON of ``value``: sorted keys, no blanks. Raises for NaN and what JSON cannot hold."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.encode()


def short_hash(value: Any) -> str:
    """First 16 hex digits of sha256 over the canonical JSON of ``value``."""
    return hashlib.sha256(canonical(value)).hexdigest()[:16]


POINT_KEYS = (
    "axis",
    "axis_value",
    "linear",
    "m",
    "m_executed",
    "k",
    "n",
    "launch_mode",
    "allocation_regime",
    "allocated_rows",
    "local_experts",
    "group_list_type",
    "group_shape",
    "group_list",
    "m_e",
)
"""What makes two measurements the same point; dtype, format, operation and hint belong to the arm.

Where graphs are replayed, the bucket list as well.
"""


def point_id(experiment: str, point: Mapping[str, Any]) -> str:
    """Identity of a point within ``experiment``, the same for every arm, run and build."""
    buckets = point.get("graph_buckets")
    keys = {key: point.get(key) for key in POINT_KEYS} | ({"graph_buckets": buckets} if buckets else {})
    return short_hash({"experiment": experiment, **keys})
