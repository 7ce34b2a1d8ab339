"""The profiler folder of a profiled launch: kernels with the step each belongs to, and the steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.profiler_folder import CHECKS, read_profiler


@dataclass(frozen=True)
class StageTables:
    """``kernels``, ``stage_steps`` and ``quarantine``, each by its contract."""

    kernels: pa.Table
    stage_steps: pa.Table
    quarantine: pa.Table


def read_stages(folder: Path, origin: Origin) -> StageTables:
    """Stage profiles of a server as Chrome traces, or torch_npu folders whose timeline marks the steps.

    ``folder`` is the ``profiler`` folder of the capture; source files are named from the capture. A file that
    cannot be read has a row in quarantine and never stops the rest. Raises NotADirectoryError for a file.
    """
    results = read_profiler(folder, origin)
    results.pop(CHECKS)
    kernels = [r.table for r in results.values() if r.table.column_names == schema("kernels").names]
    steps = [r.also["stage_steps"] for r in results.values() if "stage_steps" in r.also]
    return StageTables(
        _joined("kernels", kernels, folder.name),
        _joined("stage_steps", steps, folder.name),
        _joined("quarantine", [r.quarantine for r in results.values()], folder.name),
    )


def _joined(name: str, parts: list[pa.Table], below: str) -> pa.Table:
    table = pa.concat_tables([schema(name).empty_table(), *parts])
    index = table.column_names.index("source_file")
    files = pc.binary_join_element_wise(below, table["source_file"], "/")
    return table.set_column(index, table.schema.field(index), files)
