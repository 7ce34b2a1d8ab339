"""What a name that a person gives stands for: a run id, or a build label and its newest runs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts.errors import TilewatchError


class NothingToCompareError(TilewatchError):
    """A name that stands for no archived run, or two that have nothing in common."""


def newest(runs: pa.Table, name: str) -> list[str]:
    """Run ids that ``name`` stands for: itself, or of a label the newest run of every experiment.

    ``runs`` is the table of that name. Raises NothingToCompareError naming the builds that there are.
    """
    usable = runs.filter(pc.is_in(runs["status"], value_set=pa.array(["complete", "incomplete"])))
    if pc.any(pc.equal(usable["run_id"], name)).as_py():
        return [name]
    of_label = usable.filter(pc.equal(usable["build"], name))
    if not of_label.num_rows:
        labels = ", ".join(sorted(set(runs["build"].to_pylist()))) or "none"
        raise NothingToCompareError(
            f"{name} is neither an archived run nor a build", f"Builds in here: {labels}"
        )
    latest = of_label.group_by("experiment").aggregate([("run_id", "max")])
    return sorted(set(latest["run_id_max"].to_pylist()))
