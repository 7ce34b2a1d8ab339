"""The four experiments' own tables as text, ready to print; see ``savings.experiment_tables``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilewatch.tasks.analyse.savings.experiment_tables import (
    FORMAT_ARMS,
    core_counts,
    format_effect,
    grouped_points,
    tiling_stretches,
)
from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.publish.display import NOTHING, count, duration, ratio
from tilewatch.tasks.publish.run_report.content import ReportContent

Row = dict[str, Any]
TextRows = list[list[str]]
NUMBERS = (
    "K", "M", "M_e", "Time", "Cores", "One row a core", "Kernel ND", "Kernel NZ", "ND", "NZ",
    "Whole linear", "Over previous", "Single N", "Workspace", "Empty", "Fullest",
    "compared", "agree", "differ",
)  # fmt: skip


@dataclass(frozen=True)
class Section:
    """One experiment's table: a sentence, the head, and the rows as text."""

    name: str
    title: str
    sentence: str
    head: tuple[str, ...]
    rows: TextRows

    def is_number(self, column: int) -> bool:
        """True for a column that is set to the right."""
        return self.head[column] in NUMBERS


def sections(content: ReportContent, predicted: pa.Table) -> list[Section]:
    """The sections that have rows, A to D. ``predicted`` has schema PREDICTED of ``experiment_tables``."""
    tables = RunTables(content.runs, content.captures, content.points, content.samples, content.alignments)
    several = len(content.distinct("build")) > 1
    made = (
        _cores(core_counts(tables, predicted).to_pylist(), several),
        _structure(tiling_stretches(tables).to_pylist(), several),
        _formats(format_effect(tables, content.serving).to_pylist(), several),
        _grouped(grouped_points(tables).to_pylist(), several),
    )
    return [section for section in made if section.rows]


def _cores(found: list[Row], several: bool) -> Section:
    timed = [row for row in found if row["arm"] != "tuple_input"]
    timed.sort(key=lambda row: (row["linear"], row["axis_value"], row["build"]))
    silent = [row for row in found if row["arm"] == "tuple_input"]
    below = [r for r in timed if r["cores"] and r["one_row_a_core"] and r["cores"] < r["one_row_a_core"]]
    sentence = "One row a core would use min(vector cores, M) cores."
    if below:
        fewest = min(below, key=lambda row: row["cores"] / row["one_row_a_core"])
        sentence += (
            f" {len(below)} of {count(len(timed), 'point')} run on fewer, the fewest {fewest['linear']} "
            f"M {fewest['axis_value']} of {fewest['build']}: {fewest['cores']} of {fewest['one_row_a_core']}."
        )
    if silent:
        kernels = sum(row["dynamic_quant_kernel_count"] or 0 for row in silent)
        calls = sum(row["calls"] or 0 for row in silent)
        reasons = ", ".join(sorted({row["null_reason"] or "timed" for row in silent}))
        sentence += (
            f" Tuple input has no time of its own ({reasons}): {count(kernels, 'DynamicQuant kernel')} in "
            f"{count(calls, 'profiled call')} of {count(len(silent), 'point')}."
        )
    head = _head("Linear", "K", "M", "Time", "Cores", "From", "One row a core", "Predicted", "Key", several)
    rows = [
        _cells(
            row, several, row["linear"], row["k"], row["axis_value"], duration(row["value_ns"]), row["cores"],
            row["cores_source"], row["one_row_a_core"], _against(row["predicted_cores"], row["cores"]),
            row["tiling_key"],
        )
        for row in timed
    ]  # fmt: skip
    return Section("cores", "A: cores of DynamicQuant", sentence, head, rows)


def _structure(found: list[Row], several: bool) -> Section:
    kept = [row for row in found if row["arm"] not in FORMAT_ARMS]
    kept.sort(key=lambda row: (row["linear"], row["k"], row["n"], row["arm"], row["first"], row["build"]))
    lines = Counter((row["linear"], row["arm"], row["build"], row["k"], row["n"]) for row in kept)
    changes = sum(number - 1 for number in lines.values())
    sentence = (
        f"Between two rows of a curve the observed tiling changes: {count(changes, 'change')} on "
        f"{count(len(lines), 'curve')}. Base is base_m × base_n × base_k; blocks are along M × along N."
    )
    head = _head("Linear", "Arm", "M", "Base", "Blocks", "Cores", "Key", "First to last time", several)
    rows = [
        _cells(
            row, several, f"{row['linear']} K{row['k']} N{row['n']}", row["arm"],
            _span(row["first"], row["last"]), _product(row["base_m"], row["base_n"], row["base_k"]),
            _product(row["m_cnt"], row["n_cnt"]), row["cores"], row["tiling_key"],
            f"{duration(row['first_ns'])} to {duration(row['last_ns'])}",
        )
        for row in kept
    ]  # fmt: skip
    return Section("structure", "B: where the structure of QuantMatmul changes", sentence, head, rows)


def _formats(found: list[Row], several: bool) -> Section:
    found.sort(key=lambda row: (row["linear"], row["k"], row["n"], row["axis_value"], row["build"]))
    proved = [row for row in found if row["nz_percent"] is not None]
    sentence = f"{len(proved)} of {count(len(found), 'row')} have both formats proved, so a percentage."
    if proved:
        best = min(proved, key=lambda row: row["nz_percent"])
        found_best = "NZ gains most" if best["nz_percent"] < 0 else "NZ is faster nowhere; it loses least"
        sentence += (
            f" {found_best} at {best['linear']} M {best['axis_value']} of {best['build']}: "
            f"{best['nz_percent']:+.1f} %."
        )
    end_to_end = any(row["serving"] for row in found)
    if not end_to_end:
        sentence += " Experiment E was not measured on these builds."
    head = _head(
        "Linear", "M", "Kernel ND", "Kernel NZ", "ND", "NZ", "NZ against ND", "Verdict", "Proof",
        "Whole linear", *(["E: TPOT"] if end_to_end else []), several,
    )  # fmt: skip
    rows = [
        _cells(
            row, several, f"{row['linear']} K{row['k']} N{row['n']}", row["axis_value"],
            duration(row["nd_kernel_ns"]), duration(row["nz_kernel_ns"]), duration(row["nd_ns"]),
            duration(row["nz_ns"]), _percent(row), row["verdict"], _proof(row), duration(row["layer_ns"]),
            *([row["serving"]] if end_to_end else []),
        )
        for row in found
    ]  # fmt: skip
    return Section("formats", "C: NZ against ND", sentence, head, rows)


def _grouped(found: list[Row], several: bool) -> Section:
    found.sort(key=lambda row: (
        row["linear"], row["arm"], row["allocation_regime"] or "", row["group_shape"] or "", row["m_e"] or 0,
        row["build"],
    ))  # fmt: skip
    around = [
        row for row in found
        if (row["m_e"], row["arm"]) == (129, "int8") and row["over_previous"] is not None
    ]  # fmt: skip
    sentence = "Host tiling depends on the allocated rows, not on the group list."
    if around:
        worst = max(around, key=lambda row: row["over_previous"])
        sentence += (
            f" From the sampled M_e before 129 to 129 the time changes by {ratio(worst['over_previous'])} at "
            f"most (int8, {worst['allocation_regime']}, {worst['group_shape']}, {worst['build']})."
        )
    head = _head(
        "Linear, arm", "Rows", "M_e", "Time", "Over previous", "Base", "Single N", "Cores", "Workspace",
        "AIV:AIC", "Empty", "Fullest", "Experts × rows", "Key", several,
    )  # fmt: skip
    rows = [
        _cells(
            row, several, f"{row['linear']} {row['arm']}",
            f"{row['allocation_regime']}, {row['group_shape']}", row["m_e"],
            duration(row["value_ns"]), ratio(row["over_previous"]),
            _product(row["base_m"], row["base_n"]), row["single_n"], row["used_core_num"],
            _mebibytes(row["workspace_bytes"]),
            row["aiv_aic_ratio"], None if row["empty_ratio"] is None else f"{row['empty_ratio']:.0%}",
            ratio(row["imbalance"]), _short(row["histogram"]), row["tiling_key"],
        )
        for row in found
    ]  # fmt: skip
    return Section("grouped", "D: GroupedMatmul by M_e", sentence, head, rows)


def _head(*names: str | bool) -> tuple[str, ...]:
    words = [name for name in names if isinstance(name, str)]
    return (words[0], *(["Build"] if names[-1] else []), *words[1:])


def _cells(row: Row, several: bool, *values: object) -> list[str]:
    texts = [NOTHING if value is None else str(value) for value in values]
    return [texts[0], *([str(row["build"])] if several else []), *texts[1:]]


def _against(predicted: int | None, observed: int | None) -> str | None:
    if predicted is None or observed is None:
        return None if predicted is None else str(predicted)
    return f"{predicted}, agrees" if predicted == observed else f"{predicted}, DIFFERS"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _product(*parts: int | None) -> str | None:
    return None if any(part is None for part in parts) else " × ".join(map(str, parts))


def _percent(row: Row) -> str:
    if row["nz_percent"] is None:
        return f"no percentage: {row['not_proved'] or row['verdict_reason']}"
    text = f"{row['nz_percent']:+.1f} % ({row['nz_percent_low']:+.1f} to {row['nz_percent_high']:+.1f})"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _proof(row: Row) -> str:
    loaded = f"loaded {row['nd_format'] or 'unknown'} and {row['nz_format'] or 'unknown'}"
    operators = sorted({name for name in (row["nd_operator"], row["nz_operator"]) if name})
    processes = f"{row['nd_processes']} + {row['nz_processes']} separate processes"
    return f"{loaded}; {' and '.join(operators) or 'operator unknown'}; {processes}"


def _mebibytes(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes / 2**20:.1f} MiB"


def _short(histogram: str | None) -> str | None:
    parts: Iterable[str] = (histogram or "").split(", ")
    shown = list(parts)
    return histogram if len(shown) <= 4 else f"{', '.join(shown[:2])}, … {shown[-1]}"
