"""`predict`: the tiling a call will get, what an upgrade changes, and how golden vectors agree."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated

import typer

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.flows.cli.exits import FAILED, told
from tilewatch.flows.cli.operating_points import operating_points_of
from tilewatch.flows.cli.output import complain, out, show_rows, show_table, warn
from tilewatch.flows.cli.predict_arguments import columns_of, experiments_of, format_of, span_of, values_of
from tilewatch.flows.cli.predict_output import print_json, print_rows, show_intervals
from tilewatch.flows.cli.predict_path import coverage_of, explain_call, table
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import load_settings
from tilewatch.tasks.plan.choices import DEFAULT_SOC
from tilewatch.tasks.predict.arithmetic.integers import ints
from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import Platform, cann_version, platform
from tilewatch.tasks.predict.golden.check import check_files
from tilewatch.tasks.predict.golden.report import report_document, report_rows
from tilewatch.tasks.predict.questions.boundaries import intervals
from tilewatch.tasks.predict.questions.experiments import axis_list, curves
from tilewatch.tasks.predict.questions.targets import unpredicted
from tilewatch.tasks.predict.questions.upgrades import Change, upgrade_changes

DEFAULT_CANN = "9.1.0"
OF_A_RUN = ("runs", "points", "alignments")

app = typer.Typer(
    no_args_is_help=True,
    help="Predict host tiling without a device: where it flips, and what an upgrade will change.\n\n"
    "The operator commands print intervals of an axis on which the tiling stays the same, the fields that "
    "differ at each edge, the rule that decided, and what on the host may still override it.\n\n"
    "Examples: `tilewatch predict quant-matmul --m 1:256 --k 4096 --n 1024` · "
    "`tilewatch predict diff --cann 8.5.0 --to 9.1.0 --experiment B`",
)

app.command("operating-points")(operating_points_of)
app.command("explain")(explain_call)
app.command("table")(table)
app.command("coverage")(coverage_of)

Soc = Annotated[
    str, typer.Option("--soc", help="SoC as CANN names it, e.g. Ascend910_9391; a wrong one lists all.")
]
Cann = Annotated[
    str, typer.Option("--cann", help="Release to predict for, also 9.1.0,ops_transformer=9.2.0-beta.2.")
]
Cores = Annotated[
    int | None, typer.Option("--cube-cores", help="Cube cores that tiling sees, where they are limited.")
]
NoTensorApi = Annotated[
    bool, typer.Option("--no-tensor-api", help="asc-devkit older than 9.1.0: no Tensor API on the 950.")
]
M = Annotated[str, typer.Option("--m", help="Rows: 16 or a range 1:256.")]
K = Annotated[int, typer.Option("--k", help="Inner dimension.")]
N = Annotated[int | None, typer.Option("--n", help="Output columns; or give --weight-shape.")]
WeightShape = Annotated[
    str, typer.Option("--weight-shape", help="Instead of --n: 4096,1024, experts first if there are any.")
]
Format = Annotated[str, typer.Option("--format", help="Weight format: nz or nd.")]
Transposed = Annotated[bool, typer.Option("--transposed", help="Weight is [N, K] with transpose set.")]
Every = Annotated[bool, typer.Option("--every-field", help="Also cut where a field only follows the shape.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: a list of objects.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")]


@app.command("dynamic-quant")
def dynamic_quant(
    m: M,
    k: K,
    x_dtype: Annotated[str, typer.Option("--x-dtype", help="bfloat16 or float16.")] = "bfloat16",
    smooth: Annotated[bool, typer.Option("--smooth", help="With a smooth scale.")] = False,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="With an offset output (DynamicQuantV2).")
    ] = False,
    soc: Soc = DEFAULT_SOC,
    cann: Cann = DEFAULT_CANN,
    vector_cores: Annotated[
        int | None, typer.Option("--vector-cores", help="Vector cores that tiling sees, where limited.")
    ] = None,
    every_field: Every = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Intervals of M on which DynamicQuant (BF16 to INT8, per token) keeps its tiling.

    Example: `tilewatch predict dynamic-quant --m 1:256 --k 4096 --cann 8.5.0`
    """
    with told():
        call = DynamicQuantCall(1, k, x_dtype=x_dtype, smooth=smooth, asymmetric=asymmetric)
        span, chip = span_of("m", m), platform(soc)
        if vector_cores is not None:
            chip = chip.limited(chip.cube_cores, vector_cores)
        found = intervals(call, "m", *span, chip, cann_version(cann, chip.npu_arch), every_field=every_field)
        show_intervals(found, "m", f"DynamicQuant K={k}, {soc}, CANN {cann}", as_json, as_csv)


@app.command("quant-matmul")
def quant_matmul(
    m: M,
    k: K,
    n: N = None,
    weight_shape: WeightShape = "",
    weight_format: Format = "nz",
    transposed: Transposed = False,
    scale_dtype: Annotated[
        str, typer.Option("--scale-dtype", help="Scale per channel: float32 or bfloat16.")
    ] = "float32",
    bias_dtype: Annotated[
        str, typer.Option("--bias-dtype", help="int32, bfloat16 or float32; none without.")
    ] = "",
    soc: Soc = DEFAULT_SOC,
    cann: Cann = DEFAULT_CANN,
    cube_cores: Cores = None,
    no_tensor_api: NoTensorApi = False,
    every_field: Every = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Intervals of M on which QuantMatmul (INT8, per channel and token, BF16 out) keeps its tiling.

    Example: `tilewatch predict quant-matmul --m 1:256 --k 4096 --n 1024 --format nz --soc Ascend910_9391
    --cann 9.1.0`
    """
    with told():
        columns = columns_of(n, weight_shape, k, transposed)
        call = QuantMatmulCall(
            1, k, columns, format_of(weight_format), transpose_w=transposed, scale_dtype=scale_dtype,
            bias_dtype=bias_dtype or None,
        )  # fmt: skip
        chip = _platform(soc, cube_cores)
        version = cann_version(cann, chip.npu_arch)
        version = version.without_tensor_api() if no_tensor_api else version
        found = intervals(call, "m", *span_of("m", m), chip, version, every_field=every_field)
        title = f"QuantBatchMatmulV3 K={k} N={columns} {call.weight_format}, {soc}, CANN {cann}"
        show_intervals(found, "m", title, as_json, as_csv)


@app.command("grouped-matmul")
def grouped_matmul(
    k: K,
    experts: Annotated[int, typer.Option("--experts", help="Experts on this device.")],
    n: N = None,
    weight_shape: WeightShape = "",
    m: Annotated[
        str, typer.Option("--m", help="Allocated rows of x, padding included: 9216 or a range.")
    ] = "9216",
    m_e: Annotated[
        str, typer.Option("--m-e", help="Rows of every expert: 26 or a range; needs one --m.")
    ] = "",
    exact: Annotated[
        bool, typer.Option("--exact", help="x is allocated without padding: rows follow --m-e.")
    ] = False,
    tuning_config: Annotated[
        int, typer.Option("--tuning-config", help="Expected rows an expert, as hint.")
    ] = 0,
    weight_format: Format = "nz",
    transposed: Transposed = False,
    out_dtype: Annotated[
        str, typer.Option("--out-dtype", help="bfloat16, float16, int8 or int32.")
    ] = "bfloat16",
    soc: Soc = DEFAULT_SOC,
    cann: Cann = DEFAULT_CANN,
    cube_cores: Cores = None,
    every_field: Every = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Intervals of allocated rows, or of rows an expert, on which GroupedMatmul keeps tiling and rounds.

    Example: `tilewatch predict grouped-matmul --k 4096 --n 4096 --experts 16 --m 9216 --m-e 1:256`
    """
    with told():
        axis, span = ("m_e", span_of("m_e", m_e)) if m_e else ("m", span_of("m", m))
        columns = columns_of(n, weight_shape, k, transposed, experts)
        call = GroupedMatmulCall(
            span_of("m", m)[0], k, columns, experts, format_of(weight_format), transpose_w=transposed,
            out_dtype=out_dtype, tuning_config=tuning_config, exact_rows=exact,
        )  # fmt: skip
        chip = _platform(soc, cube_cores)
        version = cann_version(cann, chip.npu_arch)
        found = intervals(call, axis, *span, chip, version, every_field=every_field)
        title = f"GroupedMatmul K={k} N={columns} E={experts} {call.weight_format}, {soc}, CANN {cann}"
        show_intervals(found, axis, title, as_json, as_csv)


@app.command("diff")
def diff(
    to: Annotated[str, typer.Option("--to", help="Release after it, also 9.1.0,ops_nn=9.2.0-beta.2.")],
    cann: Annotated[str, typer.Option("--cann", help="Release before the upgrade.")] = DEFAULT_CANN,
    experiment: Annotated[
        list[str] | None, typer.Option("--experiment", help="Letter, repeatable; every operator one without.")
    ] = None,
    m: Annotated[str, typer.Option("--m", help="Other axis values: a range 1:256 or a list 1,16,64.")] = "",
    soc: Soc = DEFAULT_SOC,
    cube_cores: Cores = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """What an upgrade of CANN changes, worst first: cores lost, then another key, then another base block.

    Example: `tilewatch predict diff --cann 8.5.0 --to 9.1.0 --experiment B --m 1:256 --csv`
    """
    with told():
        chip = _platform(soc, cube_cores)
        before, after = (cann_version(text, chip.npu_arch) for text in (cann, to))
        specs = experiments_of(experiment)
        values = [ints(values_of("m", m)) if m else axis_list(spec) for spec in specs]
        swept = ((curve, own) for spec, own in zip(specs, values, strict=True) for curve in curves(spec))
        found, left_out = upgrade_changes(swept, chip, before, after)
        rows = [asdict(change) for change in found]
        title = f"CANN {cann} → {to} on {soc}: {len(rows)} changes"
        if rows or as_json or as_csv:
            print_rows(rows, [f.name for f in fields(Change)], title, as_json, as_csv)
        else:
            out.print(f"{title}: every predicted tiling stays as it is", markup=False)
        for reason in left_out:
            warn(f"left out: {reason}")


@app.command("check")
def check(
    files: Annotated[list[Path], typer.Argument(help="Golden vectors: CSV or JSON lines, gzipped or not.")],
    shown: Annotated[int, typer.Option("--shown", help="Disagreements printed in full.")] = 5,
    left_out: Annotated[
        bool, typer.Option("--left-out", help="Also print every row that is not compared, and why.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with golden vectors, field by field; exits 1 if any covered row disagrees.

    Example: `tilewatch predict check golden_qbmm_910_93.csv.gz ut_qbmm_v3.jsonl.gz --left-out`
    """
    with told():
        results = check_files(files)
    if as_json:
        print_json([report_document(result) for result in results])
    for result in results if not as_json else ():
        columns, rows = report_rows(result)
        out.print(result.summary, markup=False, soft_wrap=True)
        show_rows(columns, rows)
        for line in result.first_disagreements(shown):
            out.print(line, markup=False, soft_wrap=True)
        for number, why in result.uncovered.items() if left_out else ():
            out.print(f"line {number}: left out: {why}", markup=False, soft_wrap=True)
    if any(result.disagreeing_rows for result in results):
        complain("a covered row disagrees with its golden vector")
        raise typer.Exit(FAILED)


@app.command("observed")
def observed(
    run: Annotated[str, typer.Argument(help="Run id, as `tilewatch runs` lists it.")],
    asked: Annotated[
        str | None, typer.Option("--as", help="Predict by this release instead of the build's own; flagged.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Predicted against observed tiling of an archived run: agreement by field, then what differs.

    Each operator is predicted by the release of its own package: DynamicQuant and QuantMatmul by ops_nn,
    GroupedMatmul by ops_transformer, by CANN where none is stated. A disagreement is a finding about the
    build: it is printed with the rule and what may cause it.
    """
    from tilewatch.tasks.publish.run_report.agreement import agreement

    with told(), open_archive(load_settings()) as archive:
        tables = [archive.tables.scan(name, [("run_id", "==", run)]) for name in OF_A_RUN]
        if not tables[0].num_rows:
            raise TilewatchError(f"run {run} is not in the archive", "`tilewatch runs` lists what is")
        found = agreement(tables[0], tables[1], tables[2], asked)
    if asked is not None:
        warn(f"predicted by hand as {asked}, whatever release the build states")
    for reason in [] if asked else unpredicted(tables[0]):
        warn(f"not predicted: {reason}")
    if found is None or not found.by_field.num_rows:
        out.print("nothing to compare: nothing of this run is predicted, or no tiling was seen")
        return
    by_field, different = found.by_field, found.disagreements
    if as_json:
        print_json({"by_field": by_field.to_pylist(), "disagreements": different.to_pylist()})
        return
    show_table(by_field, title=f"Predicted against observed tiling of run {run}", as_csv=as_csv)
    if different.num_rows and not as_csv:
        show_table(different, title="Where they differ")


def _platform(soc: str, cube_cores: int | None) -> Platform:
    chip = platform(soc)
    return chip if cube_cores is None else chip.limited(cube_cores)
