"""The door for notebooks: what ``import tilewatch`` gives.

``load``, ``compare`` and ``ingest`` work on the archive of this host's settings (TILEWATCH_HOME and the
others), ``predict`` needs none, ``cliffs`` and ``change_points`` take plain numbers from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tilewatch.flows.steps.ingest import IngestReport, ingest_paths
from tilewatch.flows.steps.judge import judge
from tilewatch.flows.steps.profiles import as_path, compare_paths
from tilewatch.flows.steps.requests import CompareRequest
from tilewatch.flows.steps.runner import Runner
from tilewatch.infra.archive import open_archive
from tilewatch.infra.services import store
from tilewatch.infra.settings import load_settings
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.analyse.arrays import Numbers, change_points_of, cliffs_of
from tilewatch.tasks.analyse.cliffs.cliffs import Cliff
from tilewatch.tasks.plan.choices import DEFAULT_SOC
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.predict import call_named
from tilewatch.tasks.predict.predict import predict as predict_call
from tilewatch.tasks.predict.records import TilingRecord


def load(table: str, build: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Rows of ``table`` (a contract's name) of one build or run, or all. Times are int64 columns in ns.

    >>> verdicts = tilewatch.load("comparisons", build="sim-cann9.0.0")
    >>> sorted(set(verdicts["candidate"]))
    ['sim-cann9.0.0']
    """
    with store(load_settings()) as endpoint:
        return TableStore(endpoint).load(table, build=build, run_id=run_id)


def compare(
    baseline: str | Path, candidate: str | Path, *, overrides: Sequence[str] = (), rank: int | None = None
) -> pd.DataFrame:
    """Verdicts of ``candidate`` against ``baseline``, one row a point; published as `tilewatch compare` does.

    Both are build labels or run ids of the archive. Raises NothingToCompareError for other names. Servers of
    experiment E have rows here only where neither side measured an operator.

    Or both are paths of profiles, compared where they lie (of ``rank`` alone, if given) and published
    nowhere: a row a step part, cost category and kernel group in the columns of contract
    ``profile_comparisons``, the step first and then the worst.

    >>> rows = tilewatch.compare("sim-cann8.5.0", "sim-cann9.0.0")
    >>> set(rows["verdict"]) <= {"FASTER", "SLOWER", "SAME", "UNDECIDED", "MISSING", "NOT_APPLICABLE"}
    True
    """
    paths = as_path(str(baseline)), as_path(str(candidate))
    if paths[0] is not None and paths[1] is not None:
        return compare_paths(paths[0], paths[1], rank=rank, overrides=overrides).rows.to_pandas()
    baseline, candidate = str(baseline), str(candidate)
    request = CompareRequest(baseline=baseline, candidate=candidate, overrides=tuple(overrides))
    done = judge(Runner(load_settings()), request)
    rows = done.serving.rows if done.serving is not None and done.serving.only else done.rows
    return rows.to_pandas()


def ingest(*paths: str | Path, build: str | None = None) -> IngestReport:
    """Store and read profiler output, plog trees or serving results; the same bytes again store nothing.

    Returns what became of every file. Raises FileNotFoundError, and ArchiveError for an unsafe archive.

    >>> report = tilewatch.ingest("my_results", build="my-build")
    >>> [sorted(file.rows) for one in report.captures for file in one.account if file.rows]
    [['serving_results']]
    """
    settings = load_settings()
    with open_archive(settings) as archive:
        return ingest_paths(settings, archive, [Path(path) for path in paths], build)


def predict(operation: str, *, soc: str = DEFAULT_SOC, cann: str = "9.0.0", **call: Any) -> TilingRecord:
    """Host tiling that CANN would choose for one call, and the rule that says so; nothing is run.

    ``operation`` is dynamic_quant, quant_matmul, grouped_matmul or a fused one; ``call`` its shape and
    options, by the names of the call classes in ``tasks/predict/calls.py``. Raises PredictError naming the
    field for what cannot be predicted.

    >>> found = tilewatch.predict("quant_matmul", m=16, k=4096, n=1024, weight_format="FRACTAL_NZ")
    >>> found.tiling_key, found.base_m, found.base_n, found.block_dim
    ('24', 16, 64, 16)
    """
    return predict_call(call_named(operation, call), platform(soc), cann_version(cann))


def cliffs(axis: Numbers, values: Numbers, curve: Sequence[str] | Numbers | None = None) -> list[Cliff]:
    """Where latency jumps along ``axis``: kind, both sides and the ratio; ``values`` are durations in ns.

    Several curves at once by ``curve``, the name of each row's. Raises AnalysisError for what is not a curve.

    >>> m = [1, 2, 4, 8, 16, 17, 18, 32]
    >>> ns = [10000, 10000, 10100, 10050, 10000, 15000, 15010, 15000]
    >>> [(found.before, found.after, found.kind) for found in tilewatch.cliffs(m, ns)]
    [(16, 17, 'step')]
    """
    return cliffs_of(axis, values, curve)


def change_points(values: Numbers, *, max_p_value: float = 0.001) -> list[int]:
    """Where a series in time order changed: index of the first value after each change (E-divisive).

    Raises AnalysisError for values that are not finite.

    >>> tilewatch.change_points([100.0] * 10 + [120.0] * 10)
    [10]
    """
    return change_points_of(values, max_p_value=max_p_value)
