"""Names of the tables that only serving experiments have."""

from __future__ import annotations

SERVING_TABLES = (
    "launches", "requests", "serving_metrics", "stage_steps", "phase_costs", "serving_comparisons", "gates",
    "serving_savings",
)  # fmt: skip
