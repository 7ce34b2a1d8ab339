"""A comparison of two profiles in ten lines, and as a document for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tilewatch.tasks.analyse.profiles.compare import ProfilesCompared
from tilewatch.tasks.analyse.profiles.linears import Answer
from tilewatch.tasks.analyse.profiles.predicted_cores import CoreCheck
from tilewatch.tasks.publish.display import NOTHING, duration, ratio
from tilewatch.tasks.publish.profile_report.guide import cannot_answer

GROUPS_SHOWN = 5
_ORDER = ("SLOWER", "FASTER", "SAME", "UNDECIDED", "MISSING")


def lines(compared: ProfilesCompared) -> list[str]:
    """About ten lines: the step, its parts, the groups that changed most, counts, how far this reaches."""
    rows = compared.rows.to_pylist()
    found = [_headline(rows, compared), *_parts(rows)]
    changed = [row for row in rows if row["kind"] == "group" and not row["communicates"] and tells(row)]
    changed.sort(key=lambda row: -abs(row["difference_ns"]))
    found += [f"  {group_sentence(row)}" for row in changed[:GROUPS_SHOWN]]
    if len(changed) > GROUPS_SHOWN:
        found.append(f"  … {len(changed) - GROUPS_SHOWN} more groups changed; the page and --json name them")
    found.append(_counts(rows))
    differ = compared.differences
    told = (
        ("not comparable", differ.refused),
        ("changed", differ.changed),
        ("mind", (*differ.warned, *differ.parallel)),
    )
    found += [f"{words}: {'; '.join(sentences)}" for words, sentences in told if sentences]
    found += [f"not answered: {'; '.join(open_)}"] if (open_ := _unanswered(compared)) else []
    found.append(f"steps: base {'; '.join(compared.notes[0])} | candidate {'; '.join(compared.notes[1])}")
    return found


def linear_lines(answers: Sequence[Answer], unmatched: Sequence[str]) -> list[str]:
    """The answer as a list: for each linear INT8 pays, does not, or cannot be told; the largest first."""
    found = []
    for answer in answers:
        interval = ""
        if answer.net_low_ns is not None and answer.net_high_ns is not None:
            interval = f" ({signed(answer.net_low_ns)} to {signed(answer.net_high_ns)})"
        other = f" − other {duration(answer.t_other_ns)}" if answer.t_other_ns else ""
        found.append(
            f"{answer.sentence}: BF16 {duration(answer.t_bf16_ns)} − INT8 {duration(answer.t_int8_ns)}"
            f" − DynamicQuant {duration(answer.t_dynamic_quant_ns)}{other}"
            f" = net {signed(answer.net_ns)} a call{interval}, {answer.calls:.4g} calls a step"
        )
    return found + list(unmatched) or ["no linear is BF16 on the base side and INT8 on the candidate side"]


def core_lines(name: str, check: CoreCheck) -> list[str]:
    """Agreement of one side, then a line a kernel group: rows, observed and predicted cores, and why."""
    found = [f"cores, {name}: {check.sentence}"]
    for row in check.rows:
        told = NOTHING if row.predicted is None else str(row.predicted)
        text = f"  {row.op} ({row.call}): {row.rows} rows on {row.observed} of {row.cores}, predicted {told}"
        found.append(f"{text}; {row.finding or row.why}" if row.finding or row.predicted is None else text)
    return found


def document(
    compared: ProfilesCompared, answers: tuple[Sequence[Answer], Sequence[str]] | None = None
) -> dict[str, Any]:
    """Everything of the comparison as plain values: scope, notes, differences, all rows, linears if asked."""
    differences = compared.differences
    return {
        "baseline": compared.rows["baseline"][0].as_py() if compared.rows.num_rows else None,
        "candidate": compared.rows["candidate"][0].as_py() if compared.rows.num_rows else None,
        "level": compared.level.name,
        "scope": compared.level.sentence,
        "notes": {"base": list(compared.notes[0]), "candidate": list(compared.notes[1])},
        "refused": list(differences.refused),
        "parallel_groups": list(differences.parallel),
        "warned": list(differences.warned),
        "changed": list(differences.changed),
        "rows": compared.rows.to_pylist(),
        "linears": None if answers is None else [answer.row() for answer in answers[0]],
        "linears_unmatched": None if answers is None else list(answers[1]),
    }


def tells(row: Mapping[str, Any]) -> bool:
    """True for a group that is called different, or that only one side has."""
    return row["verdict"] in ("SLOWER", "FASTER", "MISSING")


def group_sentence(row: Mapping[str, Any]) -> str:
    """One group in one line: verdict, effect, what it is, and the cause."""
    effect = f"{row['verdict']} {ratio(row['ratio'])}" if row["ratio"] else row["change"].upper()
    unit = "a step" if row["base_step_ns"] is not None or row["candidate_step_ns"] is not None else "a call"
    shapes = shape_text(row["base_input_shapes"] or row["candidate_input_shapes"])
    calls = row["candidate_calls"] if row["candidate_calls"] is not None else row["base_calls"]
    text = f"{effect}, {signed(row['difference_ns'])} {unit}: {row['name']}{f' [{shapes}]' if shapes else ''}"
    text += f", {calls:.4g} calls"
    return f"{text}; {row['cause']}" if row["cause"] else f"{text}; nothing in its own rows changed but time"


def shape_text(shapes: Sequence[Sequence[int]] | None, most: int = 3) -> str:
    """Shapes as ``16×7168, 7168×1536``; at most ``most`` of them."""
    if not shapes:
        return ""
    shown = ["×".join(map(str, shape)) or "scalar" for shape in shapes[:most]]
    return ", ".join(shown) + (" …" if len(shapes) > most else "")


def signed(value_ns: float | None) -> str:
    """A difference with its sign: ``+1.20 ms``."""
    if value_ns is None:
        return duration(None)
    return f"{'+' if value_ns >= 0 else '−'}{duration(abs(value_ns))}"


def _headline(rows: Sequence[Mapping[str, Any]], compared: ProfilesCompared) -> str:
    first = rows[0] if rows else None
    names = f"{first['candidate']} against {first['baseline']}" if first else "nothing to compare"
    step = next((row for row in rows if row["kind"] == "step"), None)
    if step is None:
        return f"{names}: no steps on both sides, so single calls are compared; {compared.level.sentence}"
    change = f"{duration(step['base_step_ns'])} → {duration(step['candidate_step_ns'])}"
    words = f"{step['verdict']} {ratio(step['ratio'])}" if step["ratio"] else step["verdict"]
    return f"{names}: step {change}, {words} ({compared.level.sentence})"


def _parts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = [row for row in rows if row["kind"] == "part"]
    if not parts:
        return []
    told = [
        f"{row['name']} {duration(row['base_step_ns'])} → {duration(row['candidate_step_ns'])}"
        f" ({signed(row['difference_ns'])})"
        for row in parts
    ]
    groups = [row for row in rows if row["kind"] == "group"]
    sums = [sum(row[f"{side}_step_ns"] or 0.0 for row in groups) for side in ("base", "candidate")]
    beside = f"kernel sums {duration(sums[0])} → {duration(sums[1])} overlap between streams"
    return [f"  {', '.join(told)}; {beside}"]


def _unanswered(compared: ProfilesCompared) -> list[str]:
    """What a profile of either side cannot answer, and which setting would."""
    found: dict[str, None] = {}
    for side in (compared.base, compared.candidate):
        for profile in side.profiles:
            kernels, capture = profile.capture.kernels, profile.capture
            held = [name for name in kernels.column_names if kernels[name].null_count < kernels.num_rows]
            found |= dict.fromkeys(cannot_answer(capture.facts, capture.settings, held))
    return list(found)


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    groups = [row for row in rows if row["kind"] == "group"]
    told = []
    for words, apart in (("kernel groups", False), ("communication groups, judged apart", True)):
        verdicts = Counter(row["verdict"] for row in groups if row["communicates"] == apart)
        if verdicts:
            counts = ", ".join(f"{verdicts[v]} {v}" for v in _ORDER if verdicts[v])
            told.append(f"{sum(verdicts.values())} {words}: {counts}")
    return "; ".join(told)
