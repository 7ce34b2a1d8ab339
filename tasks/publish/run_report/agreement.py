"""Predicted tiling against the observed one of a report's runs: agreement by field, and what disagrees."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.predict.questions.for_points import point_predictions
from tilewatch.tasks.predict.questions.observation import Agreement, compare
from tilewatch.tasks.predict.questions.targets import targets, unpredicted
from tilewatch.tasks.publish.display import experiment_name
from tilewatch.tasks.publish.run_report.bands import Row
from tilewatch.tasks.publish.run_report.experiment_sections import Section


def agreement(
    runs: pa.Table, points: pa.Table, alignments: pa.Table, asked: str | None = None
) -> Agreement | None:
    """Agreement with ``build`` as first column; None where no build has a release and SoC that are known.

    ``asked`` is a release to predict by instead of those that the builds state.
    """
    by_field: list[pa.Table] = []
    different: list[pa.Table] = []
    for target in targets(runs, asked):
        predicted = point_predictions(_of(points, target.build), target.platform, target.releases)
        found = compare(predicted, _of(alignments, target.build))
        for part, whole in ((found.by_field, by_field), (found.disagreements, different)):
            whole.append(part.add_column(0, "build", pa.array([target.build] * len(part), pa.string())))
    return Agreement(pa.concat_tables(by_field), pa.concat_tables(different)) if by_field else None


def agreement_sections(runs: pa.Table, points: pa.Table, alignments: pa.Table) -> list[Section]:
    """One section for the counts and one for the disagreements; none where nothing was compared.

    What of the builds cannot be predicted is a section of its own: silence would look like agreement.
    """
    found = agreement(runs, points, alignments)
    left_out = unpredicted(runs)
    made = [_left_out(left_out)] if left_out else []
    if found is None or not found.by_field.num_rows:
        return made
    made.append(_counts(found.by_field.to_pylist()))
    if found.disagreements.num_rows:
        made.append(_findings(found.disagreements.to_pylist()))
    return made


def _left_out(reasons: list[str]) -> Section:
    sentence = (
        "For these builds host tiling is not predicted, so it is not compared either. "
        "`tilewatch predict observed RUN --as RELEASE` predicts by another release, flagged."
    )
    return Section("unpredicted", "Not predicted", sentence, ("why",), [[reason] for reason in reasons])


def _of(table: pa.Table, build: str) -> pa.Table:
    return table.filter(pc.equal(table["build"], build))


def _counts(rows: list[Row]) -> Section:
    total = Counter[str]()
    for row in rows:
        total.update({name: row[name] for name in ("compared", "agree", "differ")})
    sentence = (
        f"{total['agree']:,} of {total['compared']:,} values that host tiling was predicted to take agree."
    )
    if {row["evidence"] for row in rows} == {"simulated"}:
        sentence += " Simulated records follow the same rules."
    if total["differ"]:
        sentence += " A disagreement is a finding about the build, and stays one until someone settles it."
    names = ("build", "operator", "field", "compared", "agree", "differ")
    worst = sorted(rows, key=lambda row: (-row["differ"], row["build"], row["operator"], row["field"]))
    body = [[str(row[name]) for name in names] for row in worst]
    return Section("agreement", "Predicted against observed tiling, by field", sentence, names, body)


def _findings(rows: list[Row]) -> Section:
    names = ("build", "operator", "experiment", "arm", "M", "K", "N", "field", "predicted", "observed")
    head = (*names, "rule", "possible reasons")
    body = [
        [
            row["build"], row["operator"], experiment_name(row["experiment"]), row["arm"], str(row["m"]),
            str(row["k"]), "" if row["n"] is None else str(row["n"]), row["field"], row["predicted"],
            row["observed"], row["rule"], row["reasons"],
        ]
        for row in rows
    ]  # fmt: skip
    sentence = "Each value that differs, the rule that predicted it, and what the sources say can cause it."
    return Section("disagreements", "Where prediction and observation differ", sentence, head, body)
