"""How far every measured point is from the least time its device allows."""

from __future__ import annotations

from collections.abc import Sequence

from tilewatch.tasks.publish.display import duration, experiment_name
from tilewatch.tasks.publish.run_report.bands import Row
from tilewatch.tasks.publish.run_report.experiment_sections import Section

HEAD = ("experiment", "curve", "arm", "at", "time", "least possible", "distance", "bound by")


def distance_sections(curves: Sequence[Row]) -> list[Section]:
    """One section, the points nearest to the bound first; none where no point has a least time."""
    known = sorted((row for row in curves if row["distance"] is not None), key=lambda row: row["distance"])
    if not known:
        return []
    nearest = known[0]
    sentence = (
        "Time over the least that the device's bandwidth and peak allow. Nearest: "
        f"{nearest['curve']} at {nearest['axis_value']}, ×{nearest['distance']:.2f}. A time below the least "
        "is refused: its kernel did not run."
    )
    rows = [
        [
            experiment_name(row["experiment"]), f"{row['source']} {row['curve']}".strip(), row["arm"],
            str(row["axis_value"]), duration(row["value_ns"]), duration(row["least_ns"]),
            f"×{row['distance']:.2f}", row["least_bound"],
        ]
        for row in known
    ]  # fmt: skip
    return [Section("distances", "Distance from the least possible time", sentence, HEAD, rows)]
