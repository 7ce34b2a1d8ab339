"""`predict`: the tiling a call will get, what an upgrade changes, and how golden vectors agree."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

import flows
from infra.cli.exits import FAILED, USAGE, told
from infra.cli.output import complain, out, show_rows
from tasks.plan.experiment import Experiment, ExperimentError, load_experiments
from tasks.predict.boundaries import Interval, intervals
from tasks.predict.calls import ND, NZ, DynamicQuantCall, GroupedMatmulCall, QuantMatmulCall
from tasks.predict.environment import Platform, cann_version, platform
from tasks.predict.errors import PredictError
from tasks.predict.experiments import axis_list, curves
from tasks.predict.golden_check import check_files
from tasks.predict.golden_report import report_rows
from tasks.predict.integers import ints
from tasks.predict.upgrades import Change, changes, worst_first

DEFAULT_SOC = "Ascend910_9391"
DEFAULT_CANN = "9.1.0"
INTERVAL_COLUMNS = (
    "tiling_key", "block_dim", "base_m", "base_n", "base_k", "m_cnt", "n_cnt", "rounds", "units_per_expert",
    "single_n", "stream_k", "aiv_aic_ratio", "ub_template", "workspace_bytes", "branch",
)  # fmt: skip

app = typer.Typer(no_args_is_help=True, help="Predict host tiling without a device.")

Soc = Annotated[
    str, typer.Option("--soc", help="SoC as CANN names it, e.g. Ascend910_9391 or Ascend950PR_9589.")
]
Cann = Annotated[str, typer.Option("--cann", help="CANN version to predict for.")]
Cores = Annotated[
    int | None, typer.Option("--cube-cores", help="Cube cores reported, where they are limited.")
]
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
        span = _span("m", m)
        found = intervals(call, "m", *span, platform(soc), cann_version(cann), every_field=every_field)
        _show(found, "m", f"DynamicQuant K={k}, {soc}, CANN {cann}", as_json, as_csv)


@app.command("quant-matmul")
def quant_matmul(
    m: M,
    k: K,
    n: N,
    weight_format: Format = "nz",
    transposed: Annotated[
        bool, typer.Option("--transposed", help="Weight is [N, K] with transpose set.")
    ] = False,
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
        chip = _platform(soc, cube_cores)
        found = intervals(call, "m", *_span("m", m), chip, version, every_field=every_field)
        title = f"QuantBatchMatmulV3 K={k} N={n} {call.weight_format}, {soc}, CANN {cann}"
        _show(found, "m", title, as_json, as_csv)


@app.command("grouped-matmul")
def grouped_matmul(
    k: K,
    n: N,
    experts: Annotated[int, typer.Option("--experts", help="Experts on this device.")],
    m: Annotated[
        str, typer.Option("--m", help="Allocated rows of x, padding included: 9216 or a range.")
    ] = "9216",
    m_e: Annotated[
        str, typer.Option("--m-e", help="Rows of every expert: 26 or a range; needs one --m.")
    ] = "",
    tuning_config: Annotated[
        int, typer.Option("--tuning-config", help="Expected rows an expert, as hint.")
    ] = 0,
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
        axis, span = ("m_e", _span("m_e", m_e)) if m_e else ("m", _span("m", m))
        rows = _span("m", m)[0]
        call = GroupedMatmulCall(rows, k, n, experts, _format(weight_format), tuning_config=tuning_config)
        chip = _platform(soc, cube_cores)
        found = intervals(call, axis, *span, chip, cann_version(cann), every_field=every_field)
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
    cube_cores: Cores = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """What an upgrade of CANN changes, worst first: cores lost, then another key, then another base block."""
    with _told():
        before, after, chip = cann_version(cann), cann_version(to), _platform(soc, cube_cores)
        found = []
        for spec in _experiments(experiment):
            values = ints(_values("m", m)) if m else axis_list(spec)
            for curve in curves(spec):
                found += changes(curve.call, curve.axis, values, chip, before, after, curve.linear)
        rows = [asdict(change) for change in dict.fromkeys(worst_first(found))]
        _print(
            rows,
            [f.name for f in fields(Change)],
            f"CANN {cann} → {to} on {soc}: {len(rows)} changes",
            as_json,
            as_csv,
        )


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


@contextmanager
def _told() -> Iterator[None]:
    """An unpredictable request becomes one message and the exit code of a wrong one."""
    with told():
        try:
            yield
        except PredictError as error:
            complain(str(error))
            raise typer.Exit(USAGE) from None


def _format(name: str) -> str:
    formats = {"nz": NZ, "fractal_nz": NZ, "nd": ND}
    if name.lower() not in formats:
        raise PredictError("format", f"{name!r}: must be nz or nd")
    return formats[name.lower()]


def _platform(soc: str, cube_cores: int | None) -> Platform:
    chip = platform(soc)
    return chip if cube_cores is None else chip.limited(cube_cores)


def _span(name: str, text: str) -> tuple[int, int]:
    """First and last of ``5`` or ``1:256``."""
    first, _, last = text.partition(":")
    try:
        span = int(first), int(last or first)
    except ValueError:
        raise PredictError(name, f"{text!r}: must be a number or a range such as 1:256") from None
    if span[0] > span[1]:
        raise PredictError(name, f"{text!r}: the range ends before it begins")
    return span


def _values(name: str, text: str) -> list[int]:
    """Values of ``1,16,64`` and ranges of it such as ``1:256``."""
    spans = [_span(name, part) for part in text.split(",")]
    return [value for first, last in spans for value in range(first, last + 1)]


def _experiments(letters: list[str] | None) -> list[Experiment]:
    known = load_experiments(Path(flows.__file__).parent / "experiments")
    wanted = [letter.upper() for letter in letters or known]
    if missing := [letter for letter in wanted if letter not in known]:
        raise ExperimentError(f"no operator experiment {', '.join(missing)}; known: {', '.join(known)}")
    return [known[letter] for letter in wanted]


def _show(found: list[Interval], axis: str, title: str, as_json: bool, as_csv: bool) -> None:
    rows = [
        {f"{axis}_from": i.start, f"{axis}_to": i.stop}
        | {name: getattr(i.record, name) for name in INTERVAL_COLUMNS}
        | {"differs": ", ".join(i.differs)}
        for i in found
    ]
    names = [f"{axis}_from", f"{axis}_to", *INTERVAL_COLUMNS, "differs"]
    if as_json or as_csv:
        names += ["rule", "unknown_reason"]
        rows = [
            row | {n: getattr(i.record, n) for n in names[-2:]} for row, i in zip(rows, found, strict=True)
        ]
    else:
        names = [n for n in names if n == "differs" or any(row[n] is not None for row in rows)]
        rows = [row | {"differs": _short(i.differs)} for row, i in zip(rows, found, strict=True)]
    _print(rows, names, title, as_json, as_csv)
    if not (as_json or as_csv):
        for branch, rule in {i.record.branch: i.record.rule for i in found}.items():
            out.print(f"{branch}: {rule}", markup=False)
        for reason in {i.record.unknown_reason for i in found} - {None}:
            out.print(f"not decided by shape: {reason}", markup=False)


def _short(differs: tuple[str, ...]) -> str:
    """The columns that differ, and how many fields of the tiling data besides."""
    shown = [name for name in differs if name in INTERVAL_COLUMNS]
    others = len(differs) - len(shown)
    return ", ".join(shown) + (f" +{others}" if others else "")


def _print(rows: list[dict[str, Any]], names: list[str], title: str, as_json: bool, as_csv: bool) -> None:
    """Rows as a table for a person, as JSON or as CSV; values keep their own types."""
    if as_json:
        typer.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode())
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        show_rows(names, [[row[name] for name in names] for row in rows], title=title)
