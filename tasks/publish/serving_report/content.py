"""Everything the page of experiment E shows, as contract tables and a few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from tilewatch.data_contracts import schema


def _empty(table: str) -> pa.Table:
    return schema(table).empty_table()


@dataclass(frozen=True)
class ServingContent:
    """Contract tables of one run of experiment E; all but the first two may be empty.

    ``comparisons`` are ``serving_comparisons``, ``savings`` are ``serving_savings``; ``base_arm`` is the arm
    that W8A8 is held against (BF16) and ``candidate_arm`` the W8A8 arm, for the sentence at the top.
    """

    runs: pa.Table
    launches: pa.Table
    captures: pa.Table = field(default_factory=partial(_empty, "captures"))
    requests: pa.Table = field(default_factory=partial(_empty, "requests"))
    serving_metrics: pa.Table = field(default_factory=partial(_empty, "serving_metrics"))
    phase_costs: pa.Table = field(default_factory=partial(_empty, "phase_costs"))
    comparisons: pa.Table = field(default_factory=partial(_empty, "serving_comparisons"))
    gates: pa.Table = field(default_factory=partial(_empty, "gates"))
    savings: pa.Table = field(default_factory=partial(_empty, "serving_savings"))
    quarantine: pa.Table = field(default_factory=partial(_empty, "quarantine"))
    title: str = "Experiment E"
    sentence: str = ""
    """Stands first on the page instead of whether W8A8 paid off, where two builds are compared."""
    base_arm: str = "bf16"
    candidate_arm: str = "w8a8_nz"
    command: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether any number comes from a model, a stand-in driver or a simulator."""
        return "simulated" in [*self.runs["evidence"].to_pylist(), *self.launches["evidence"].to_pylist()]
