"""Everything to the right of ``collect``: from raw captures to every derived table of a run.

Pure: the same document and captures give the same tables, so a run can be rebuilt from raw at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import schema
from tilewatch.tasks.align.alignments import alignments_table
from tilewatch.tasks.align.impossible import refuse_impossible
from tilewatch.tasks.align.points import points_table
from tilewatch.tasks.align.runs import ControlCount, runs_row
from tilewatch.tasks.analyse.cliffs.explain import cliff_table
from tilewatch.tasks.analyse.comparison.control import control, control_table
from tilewatch.tasks.analyse.savings.exposed import exposed_times
from tilewatch.tasks.analyse.savings.ledger import ledger_table
from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.derive.joined import joined
from tilewatch.tasks.derive.serving import serving_tables
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.predict.questions.for_points import point_predictions
from tilewatch.tasks.predict.questions.targets import targets
from tilewatch.tasks.read.captures.operator_capture import OBSERVED, read_capture

PER_CAPTURE = ("captures", "samples", "kernels", "tilings", "quarantine")
PER_EXPERIMENT = ("points", "alignments", "runs")


def derive(
    document: RunDocument,
    captures: Mapping[str, Sequence[tuple[Path, str]]],
    ledger: pa.Table | None = None,
) -> dict[str, pa.Table]:
    """All tables of one run. ``captures`` gives per experiment its capture folders and their raw prefixes.

    ``ledger`` holds what earlier runs of the build found; serving is held against it where this run has no
    operators. Raises CaptureError for a folder whose files disagree with its manifest; bad rows go to
    ``quarantine``.
    """
    tables = _operators(document, captures) if document.plans else _no_operators()
    known = tables["ledger"] if document.plans else ledger
    parts = [tables]
    for letter in document.serving:
        parts.append(serving_tables(document, letter, captures.get(letter, ()), known))
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: joined(name, [part[name] for part in parts if name in part]) for name in names}


def _operators(
    document: RunDocument, captures: Mapping[str, Sequence[tuple[Path, str]]]
) -> dict[str, pa.Table]:
    parts = [_experiment(document, letter, captures.get(letter, ())) for letter in document.plans]
    tables = {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}
    sides = RunTables(**{f.name: tables[f.name] for f in fields(RunTables)})
    cliffs = cliff_table(sides, tilings=tables["tilings"], predictions=_predictions(sides))
    return tables | {
        "cliffs": cliffs,
        "ledger": ledger_table(sides, cliffs=cliffs),
        "exposed_times": exposed_times(tables["kernels"]),
    }


def _predictions(sides: RunTables) -> pa.Table | None:
    """Predicted tiling of the points, where some were timed whose tiling was not observed; else None."""
    unaligned = pc.equal(sides.alignments["status"], "unaligned")
    known = targets(sides.runs) if pc.any(unaligned).as_py() else []
    return point_predictions(sides.points, known[0].platform, known[0].releases) if known else None


def _no_operators() -> dict[str, pa.Table]:
    """What every run has, although this one measured no operator."""
    return {name: schema(name).empty_table() for name in (*PER_CAPTURE, *PER_EXPERIMENT)}


def _experiment(
    document: RunDocument, letter: str, folders: Sequence[tuple[Path, str]]
) -> dict[str, pa.Table]:
    read = [read_capture(folder, raw_prefix=prefix) for folder, prefix in folders]
    tables = {name: joined(name, [getattr(one, name) for one in read]) for name in PER_CAPTURE}
    observed = pa.concat_tables([OBSERVED.empty_table(), *(r.observed for r in read)])
    tables["points"] = points_table(document, letter, tables["captures"], observed)
    tables["points"], tables["samples"], impossible = refuse_impossible(tables["points"], tables["samples"])
    tables["quarantine"] = pa.concat_tables([tables["quarantine"], impossible])
    tables["alignments"] = alignments_table(
        tables["points"], tables["captures"], observed, tables["kernels"], tables["tilings"]
    )
    tables["runs"] = runs_row(
        document,
        letter,
        tables,
        observed,
        quarantined_rows=tables["quarantine"].num_rows,
        control=_control(document, tables),
    )
    return tables


def _control(document: RunDocument, tables: Mapping[str, pa.Table]) -> ControlCount:
    sides = RunTables(
        runs=pa.table({"run_id": [document.run_id]}),
        captures=tables["captures"],
        points=tables["points"],
        samples=tables["samples"],
        alignments=tables["alignments"],
    )
    counted = control(control_table(sides))
    return ControlCount(counted.pairs, counted.false_pairs, counted.status)
