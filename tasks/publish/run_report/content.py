"""Everything a report shows, as contract tables and a few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.tables import AnalysisError


def _empty(table: str) -> pa.Table:
    return schema(table).empty_table()


@dataclass(frozen=True)
class ReportContent:
    """Contract tables of one sweep, or of both sides of a comparison; all but the first four may be empty."""

    runs: pa.Table
    captures: pa.Table
    points: pa.Table
    samples: pa.Table
    alignments: pa.Table = field(default_factory=partial(_empty, "alignments"))
    tilings: pa.Table = field(default_factory=partial(_empty, "tilings"))
    """Records of every operator of a call; ``alignments`` holds those of its main one."""
    comparisons: pa.Table = field(default_factory=partial(_empty, "comparisons"))
    cliffs: pa.Table = field(default_factory=partial(_empty, "cliffs"))
    ledger: pa.Table = field(default_factory=partial(_empty, "ledger"))
    series: pa.Table = field(default_factory=partial(_empty, "series"))
    """These points in every archived run."""
    exposed: pa.Table = field(default_factory=partial(_empty, "exposed_times"))
    """Steps of the same builds that were profiled outside these runs."""
    profiled: pa.Table = field(default_factory=partial(_empty, "kernels"))
    """Kernels of those steps, for the share that the catalogue covers."""
    serving: pa.Table = field(default_factory=partial(_empty, "serving_comparisons"))
    """Arms of experiment E of the same builds."""
    checks: pa.Table = field(default_factory=partial(_empty, "checks"))
    quarantine: pa.Table = field(default_factory=partial(_empty, "quarantine"))
    title: str = "tilewatch report"
    command: str = ""
    """The command that produces this report."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Relative addresses by what they lead to; ``validation`` is the validation page."""
    software: Mapping[str, str] = field(default_factory=dict)
    """Versions for the footer."""

    def __post_init__(self) -> None:
        """Raises AnalysisError where runs of different evidence are put into one report."""
        if len(kinds := self.distinct("evidence")) > 1:
            raise AnalysisError(f"evidence is never mixed: one report cannot show {' and '.join(kinds)} runs")

    def distinct(self, column: str) -> list[str]:
        """Sorted distinct values of a column of ``runs``."""
        return sorted(pc.unique(self.runs[column]).drop_null().to_pylist())

    @property
    def simulated(self) -> bool:
        """True for simulated runs: every section says so."""
        return "simulated" in self.distinct("evidence")
