"""The page of a comparison of two profiles: one HTML file that works from a file, without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from tilewatch.tasks.analyse.profiles.compare import ProfilesCompared
from tilewatch.tasks.analyse.profiles.linears import Answer
from tilewatch.tasks.analyse.profiles.match import Unit
from tilewatch.tasks.analyse.profiles.units import Program
from tilewatch.tasks.pages import templates
from tilewatch.tasks.publish.display import NOTHING, duration, ratio
from tilewatch.tasks.publish.profile_report.lines import linear_lines, lines, shape_text, signed

_BAR, _WIDTH, _LABEL = 24, 560, 190
_STRIP_WIDTH, _STRIP_HEIGHT = 130, 26
_MOST_DOTS = 200
"""Steps drawn in one strip; of more, every so many."""


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.2%}"


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4g}"


_TEMPLATES = templates(
    "tilewatch.tasks.publish",
    "templates",
    duration=duration,
    ratio=ratio,
    signed=signed,
    percent=_percent,
    count=_count,
    shapes=shape_text,
)


def render_profiles(
    compared: ProfilesCompared,
    answers: tuple[Sequence[Answer], Sequence[str]] | None = None,
    *,
    command: str,
) -> str:
    """Self-contained HTML: waterfall, groups (sort, filter, distribution over steps), causes, linears, notes.

    ``command`` is what makes it again. The same comparison gives the same bytes.
    """
    rows = compared.rows.to_pylist()
    groups = [
        row | {"strip": _strip(unit, compared)}
        for row, unit in zip(rows, compared.units, strict=True)
        if unit is not None
    ]
    steps = [row for row in rows if row["kind"] != "group"]
    differ = compared.differences
    first = rows[0] if rows else {"baseline": "base", "candidate": "candidate"}
    return _TEMPLATES.get_template("profiles.html.j2").render(
        title=f"{first['candidate']} against {first['baseline']}",
        headline=lines(compared)[0],
        refused=differ.refused,
        waterfall=steps,
        sums=[sum(row[f"{side}_step_ns"] or 0.0 for row in groups) for side in ("base", "candidate")],
        chart=_waterfall(steps),
        scope=compared.level.sentence,
        groups=[row for row in groups if not row["communicates"]],
        communication=[row for row in groups if row["communicates"]],
        linears=None if answers is None else linear_lines(*answers),
        notes=list(zip((first["baseline"], first["candidate"]), compared.notes, strict=True)),
        differing=[*differ.changed, *differ.warned, *differ.parallel],
        command=command,
    )


def _waterfall(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Bars of the step and its parts on both sides as inline SVG, drawn to one scale."""
    shown = [row for row in rows if row["kind"] in ("step", "part")]
    if not shown:
        return Markup("")
    longest = max(max(row["base_exposed_ns"], row["candidate_exposed_ns"]) for row in shown) or 1.0
    bars = []
    for place, row in enumerate(shown):
        top = place * (2 * _BAR + 14)
        bars.append(Markup('<text x="0" y="{}">{}</text>').format(top + 28, row["name"]))
        for number, (side, colour) in enumerate((("base", "#9aa4af"), ("candidate", "#0b3c6f"))):
            value = row[f"{side}_exposed_ns"]
            length = round(_WIDTH * max(value, 0.0) / longest, 1)
            y = top + number * _BAR
            bars.append(
                Markup(
                    '<rect x="{}" y="{}" width="{}" height="{}" fill="{}"/><text x="{}" y="{}">{} {}</text>'
                ).format(
                    _LABEL,
                    y + 2,
                    length,
                    _BAR - 4,
                    colour,
                    _LABEL + length + 6,
                    y + 16,
                    side,
                    duration(value),
                )
            )
    height = len(shown) * (2 * _BAR + 14)
    return Markup(
        '<svg role="img" aria-label="time of the step and its parts" width="{}" height="{}">{}</svg>'
    ).format(_LABEL + _WIDTH + 190, height, Markup("").join(bars))


def _strip(unit: Unit, compared: ProfilesCompared) -> Markup:
    """Time of the unit in every kept step of both sides as dots over one scale, base above candidate."""
    sides = [_by_step(compared.base, unit.base), _by_step(compared.candidate, unit.candidate)]
    values = [value for side in sides for value in side]
    if not values:
        return Markup("")
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    dots = [
        Markup('<circle cx="{}" cy="{}" r="2" fill="{}"/>').format(
            round(4 + (_STRIP_WIDTH - 8) * (value - low) / span, 1), 7 + 12 * number, colour
        )
        for number, (side, colour) in enumerate(zip(sides, ("#9aa4af", "#0b3c6f"), strict=True))
        for value in side[:: max(len(side) // _MOST_DOTS, 1)]
    ]
    label = f"{duration(low)} to {duration(high)}"
    return Markup('<svg role="img" aria-label="{}" width="{}" height="{}"><title>{}</title>{}</svg>').format(
        label, _STRIP_WIDTH, _STRIP_HEIGHT, label, Markup("").join(dots)
    )


def _by_step(side: Program, groups: Sequence[int]) -> list[float]:
    if not side.has_steps or not groups:
        return []
    parts = [
        profile.time[:, side.own(groups, number)].sum(axis=1) for number, profile in enumerate(side.profiles)
    ]
    found: list[float] = np.concatenate(parts).tolist()
    return found
