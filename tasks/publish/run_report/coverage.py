"""How much of a decode step the catalogue covers, from ingested profiles of the builds on the page."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.analyse.savings.decode_coverage import Coverage, decode_coverage
from tilewatch.tasks.predict.questions.targets import targets
from tilewatch.tasks.publish.display import duration
from tilewatch.tasks.publish.run_report.experiment_sections import Section

TITLE = "What of a decode step this covers"
HEAD = ("build", "operator", "kernels", "kernel time", "wall time", "swept", "predicted")
UNKNOWN = (
    "Unknown: no profile of this build is archived. `tilewatch ingest FOLDER --build BUILD` makes one known."
)


def coverage_sections(runs: pa.Table, profiled: pa.Table) -> list[Section]:
    """One section for runs on an NPU: shares by build, and every operator with its time; none on a CPU."""
    if "npu" not in runs["agent"].to_pylist():
        return []
    if not profiled.num_rows:
        return [Section("coverage", TITLE, UNKNOWN, HEAD, [])]
    archs = {target.build: target.platform.npu_arch for target in targets(runs)}
    sentences, rows = [], []
    for build in pc.unique(profiled["build"]).to_pylist():
        own = profiled.filter(pc.equal(profiled["build"], build))
        found = decode_coverage(own, archs[build]) if build in archs else decode_coverage(own)
        sentences.append(f"{build}: {found.sentence}")
        rows += _rows(build, found)
    return [Section("coverage", TITLE, " ".join(sentences), HEAD, rows)]


def _rows(build: str, found: Coverage) -> list[list[str]]:
    return [
        [
            build, row.operator, str(row.kernels), duration(row.sum_ns),
            "unknown" if row.wall_ns is None else duration(row.wall_ns),
            "yes" if row.swept else "no", "yes" if row.predicted else "no",
        ]
        for row in found.operators
    ]  # fmt: skip
