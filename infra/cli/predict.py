"""`predict`: the tiling a call will get, what an upgrade changes, and how golden vectors agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

import flows
from infra.cli.exits import FAILED, USAGE
from infra.cli.output import complain, out, show_rows, show_table
from tasks.plan.experiment import Experiment, ExperimentError, load_experiments
from tasks.predict.boundaries import Interval, intervals
from tasks.predict.calls import ND, NZ, DynamicQuantCall, GroupedMatmulCall, OperatorCall, QuantMatmulCall
from tasks.predict.environment import CannVersion, Platform, cann_version, platform
from tasks.predict.errors import PredictError
from tasks.predict.experiments import axis_list, curves
from tasks.predict.golden_check import check_files
from tasks.predict.golden_report import report_rows
from tasks.predict.integers import ints
from tasks.predict.upgrades import changes, worst_first

DEFAULT_SOC = "Ascend910_9391"
DEFAULT_CANN = "9.1.0"

app = typer.Typer(no_args_is_help=True, help="Predict host tiling without a device.")

Soc = Annotated[str, typer.Option("--soc", help="SoC as CANN names it, e.g. Ascend910_9391 or Ascend950PR_9589.")]
Cann = Annotated[str, typer.Option("--cann", help="CANN version to predict for.")]
Cores = Annotated[int | None, typer.Option("--cube-cores", help="Cube cores reported, where they are limited.")]
NoTensorApi = Annotated[
    bool, typer.Option("--no-tensor-api", help="asc-devkit older than 9.1.0: no Tensor API on the 950.")
]
M = Annotated[str, typer.Option("--m", help="Rows: 16 or a range 1:256.")]
K = Annotated[int, typer.Option("--k", help="Inner dimension.")]
N = Annotated[int, typer.Option("--n", help="Output columns.")]
Format = Annotated[str, typer.Option("--format", help="Weight format: nz or nd.")]
Every = Annotated[bool, typer.Option("--every-field", help="Also cut where a field only follows the shape.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: a list of objects.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")]


@app.command("dynamic-quant")
def dynamic_quant(
    m: M,
    k: K,
    soc: Soc = DEFAULT_SOC,
    cann: Cann = DEFAULT_CANN,
    smooth: Annotated[bool, typer.Option(help="With a smooth scale.")] = False,
    asymmetric: Annotated[bool, typer.Option(help="With an offset output (DynamicQuantV2).")] = False,
    every_field: Every = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Intervals of M on which DynamicQuant (BF16 to INT8, per token) keeps its tiling."""
    with _told():
        call = DynamicQuantCall(1, k, smooth=smooth, asymmetric=asymmetric)
        found = _intervals(call, "m", m, platform(soc), cann_version(cann), every_field)
        _show(found, "m", f"DynamicQuant K={k}, {soc}, CANN {cann}", as_json, as_csv)


@app.command("quant-matmul")
def quant_matmul(
    m: M,
    k: K,
    n: N,
    weight_format: Format = "nz",
    transposed: Annotated[bool, typer.Option("--transposed", help="Weight is [N, K] with transpose set.")] = False,
    soc: Soc = DEFAULT_SOC,
    cann: Cann = DEFAULT_CANN,
    cube_cores: Cores = None,
    no_tensor_api: NoTensorApi = False,
    every_field: Every = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Intervals of M on which QuantMatmul (INT8, per channel and token, BF16 out) keeps its tiling."""
    with _told():
        call = QuantMatmulCall(1, k, n, _format(weight_format), transpose_w=transposed)
        version = cann_version(cann).without_tensor_api() if no_tensor_api else cann_version(cann)
        found = _intervals(call, "m", m, _platform(soc, cube_cores), version, every_field)
        title = f"QuantBatchMatmulV3 K={k} N={n} {call.weight_format}, {soc}, CANN {cann}"
        _show(found, "m", title, as_json, as_csv)


@app.command("grouped-matmul")
def grouped_matmul(
    k: K,
    n: N,
    experts: Annotated[int, typer.Option("--experts", help="Experts on this device.")],
    m: Annotated[str, typer.Option("--m", help="Allocated rows of x, padding included: 9216 or a range.")] = "9216",
    m_e: Annotated[str, typer.Option("--m-e", help="Rows of every expert: 26 or a range; needs one --m.")] = "",
    tuning_config: Annotated[int, typer.Option("--tuning-config", help="Expected rows an expert, as hint.")] = 0,
    weight_format: Format = "nz",
    soc: Soc = DEFAULT_SOC,
    cann: Cann = DEFAULT_CANN,
    cube_cores: Cores = None,
    every_field: Every = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Intervals of allocated rows, or of rows an expert, on which GroupedMatmul keeps tiling and rounds."""
    with _told():
        axis, span = ("m_e", m_e) if m_e else ("m", m)
        rows = 1 if axis == "m" else _span("m", m)[0]
        call = GroupedMatmulCall(rows, k, n, experts, _format(weight_format), tuning_config=tuning_config)
        found = _intervals(call, axis, span, _platform(soc, cube_cores), cann_version(cann), every_field)
        title = f"GroupedMatmul K={k} N={n} E={experts} {call.weight_format}, {soc}, CANN {cann}"
        _show(found, axis, title, as_json, as_csv)


@app.command("diff")
def diff(
    to: Annotated[str, typer.Option("--to", help="CANN version after the upgrade.")],
    cann: Annotated[str, typer.Option("--cann", help="CANN version before the upgrade.")] = DEFAULT_CANN,
    experiment: Annotated[
        list[str] | None, typer.Option("--experiment", help="Letter, repeatable; every operator one without.")
    ] = None,
    m: Annotated[str, typer.Option("--m", help="Other axis values: a range 1:256 or a list 1,16,64.")] = "",
    soc: Soc = DEFAULT_SOC,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """What an upgrade of CANN changes, worst first: cores lost, then another key, then another base block."""
    with _told():
        before, after, chip = cann_version(cann), cann_version(to), platform(soc)
        found = []
        for spec in _experiments(experiment):
            values = ints(_values(m)) if m else axis_list(spec)
            for curve in curves(spec):
                found += changes(curve.call, curve.axis, values, chip, before, after, curve.linear)
        unique = list(dict.fromkeys(worst_first(found)))
        rows = [asdict(change) for change in unique]
        for row in rows:
            row["before"], row["after"] = row["before"], row["after"]
        _print_rows(rows, f"CANN {cann} → {to} on {soc}: {len(rows)} changes", as_json, as_csv)


@app.command("check")
def check(
    files: Annotated[list[Path], typer.Argument(help="Golden vectors: CSV or JSON lines, gzipped or not.")],
    shown: Annotated[int, typer.Option("--shown", help="Disagreements printed in full.")] = 5,
) -> None:
    """Compare predictions with golden vectors, field by field; exits 1 if any covered row disagrees."""
    with _told():
        results = check_files(files)
    for result in results:
        columns, rows = report_rows(result)
        show_rows(columns, rows, title=result.summary)
        for line in result.first_disagreements(shown):
            out.print(line, markup=False, soft_wrap=True)
    if any(result.disagreeing_rows for result in results):
        complain("a covered row disagrees with its golden vector")
        raise typer.Exit(FAILED)
