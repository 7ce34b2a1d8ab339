"""`predict explain`, `table` and `coverage`: one decision step by step, whole sweeps, and covered shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out
from tilewatch.flows.cli.predict_arguments import experiments_of, format_of, span_of
from tilewatch.flows.cli.predict_output import print_rows
from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall, OperatorCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.questions.coverage import coverage_rows
from tilewatch.tasks.predict.questions.experiments import curves
from tilewatch.tasks.predict.questions.explanation import explain
from tilewatch.tasks.predict.questions.sweeps import sweep_table
from tilewatch.tasks.publish.files import table_csv

SOC, CANN = "Ascend910_9391", "9.1.0"
PLATFORMS = (SOC, "Ascend910B2", "Ascend950PR_9599")

Soc = Annotated[str, typer.Option("--soc", help="SoC as CANN names it; a wrong one lists all.")]
Cann = Annotated[str, typer.Option("--cann", help="Release to predict for; a wrong one lists all.")]
Experiments = Annotated[
    list[str] | None, typer.Option("--experiment", help="Letter, repeatable; every operator one without.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: a list of objects.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")]


def explain_call(
    m: Annotated[int, typer.Option("--m", help="Rows; with --experts the allocated rows.")],
    k: Annotated[int, typer.Option("--k", help="Inner dimension.")],
    n: Annotated[int | None, typer.Option("--n", help="Output columns; without them DynamicQuant.")] = None,
    experts: Annotated[int, typer.Option("--experts", help="Local experts: GroupedMatmul.")] = 0,
    weight_format: Annotated[str, typer.Option("--format", help="Weight format: nz or nd.")] = "nz",
    soc: Soc = SOC,
    cann: Cann = CANN,
    to: Annotated[str | None, typer.Option("--to", help="A second release, beside the first.")] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Explain one prediction: branch, rule, inputs, outcome, and where the rule stands in CANN's sources.

    Example: `tilewatch predict explain --m 16 --k 4096 --cann 8.5.0 --to 9.0.0`
    """
    with told():
        chip, call = platform(soc), _call(m, k, n, experts, format_of(weight_format))
        names = [cann, *([to] if to else [])]
        paths = [
            {step.step: step.value for step in explain(call, chip, cann_version(name, chip.npu_arch))}
            for name in names
        ]
        rows = [
            {"step": step, **{name: path.get(step) for name, path in zip(names, paths, strict=True)}}
            for step in dict.fromkeys(step for path in paths for step in path)
        ]
        print_rows(rows, ["step", *names], f"{call.operation} on {soc}", as_json, as_csv)


def table(
    to: Annotated[Path, typer.Argument(help="File to write, .csv or .parquet.")],
    m: Annotated[str, typer.Option("--m", help="Axis values as a range.")] = "1:256",
    experiment: Experiments = None,
    soc: Annotated[list[str] | None, typer.Option("--soc", help="SoC, repeatable.")] = None,
    cann: Annotated[list[str] | None, typer.Option("--cann", help="Release, repeatable.")] = None,
) -> None:
    """Write the predicted tiling of the reference linears over a whole range of M, for publishing.

    Example: `tilewatch predict table sweep.parquet --m 1:4096 --experiment B --cann 9.0.0 --cann 9.1.0`
    """
    with told():
        if to.suffix not in (".csv", ".parquet"):
            raise PredictError("to", f"{to}: must end in .csv or .parquet")
        chips = [platform(name) for name in soc or [SOC]]
        swept = [curve for spec in experiments_of(experiment) for curve in curves(spec)]
        made = sweep_table(swept, chips, cann or [CANN], span_of("m", m))
        _write(made, to)
        out.print(f"{made.num_rows:,} rows, {made.num_columns} columns: {to}", soft_wrap=True)


def coverage_of(
    soc: Annotated[list[str] | None, typer.Option("--soc", help="SoC, repeatable.")] = None,
    cann: Cann = CANN,
    experiment: Experiments = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Print which share of the reference linears is predicted, by operator, SoC, format and range of M.

    Example: `tilewatch predict coverage --cann 9.1.0`
    """
    with told():
        swept = [curve for spec in experiments_of(experiment) for curve in curves(spec)]
        rows = coverage_rows(swept, [platform(name) for name in soc or PLATFORMS], cann)
        title = f"Predicted share of the reference linears, CANN {cann}"
        print_rows(rows, list(rows[0]), title, as_json, as_csv)


def _call(m: int, k: int, n: int | None, experts: int, weight_format: str) -> OperatorCall:
    if n is None:
        return DynamicQuantCall(m, k)
    if experts:
        return GroupedMatmulCall(m, k, n, experts, weight_format)
    return QuantMatmulCall(m, k, n, weight_format)


def _write(made: pa.Table, to: Path) -> None:
    from pyarrow import parquet

    if to.suffix == ".parquet":
        parquet.write_table(made, to)
    else:
        to.write_bytes(table_csv(made))
