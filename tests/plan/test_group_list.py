"""How rows fall on experts: shapes by rule, and a distribution measured elsewhere from a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tilewatch.flows.experiments import SHIPPED
from tilewatch.tasks.plan.experiment import ExperimentError, load_experiment
from tilewatch.tasks.plan.group_list import LoadFileError, group_list, read_loads
from tilewatch.tasks.plan.points import points

HOT = [30, 1, 1, 0, 4, 4, 2, 2, 2, 2, 0, 0, 5, 5, 3, 3]


def test_every_shape_keeps_the_total_and_with_it_the_mean() -> None:
    for shape in ("uniform", "skewed", "measured"):
        for m_e in (1, 7, 128):
            assert sum(group_list(shape, m_e, 16, HOT)) == 16 * m_e


def test_the_skewed_shape_is_as_skewed_as_its_text_says() -> None:
    counts = group_list("skewed", 1000, 16)
    assert max(counts) / 1000 == pytest.approx(5.2, abs=0.05) and counts[12:] == [0] * 4


def test_a_measured_load_is_dealt_in_its_own_proportions_and_order() -> None:
    counts = group_list("measured", 4, 16, HOT)
    assert counts == HOT and sum(HOT) == 64
    assert group_list("measured", 8, 16, HOT) == [2 * rows for rows in HOT]


def test_fewer_experts_than_were_measured_keep_the_shape_of_the_load() -> None:
    counts = group_list("measured", 100, 4, HOT)
    assert sum(counts) == 400 and counts == sorted(counts, reverse=True) and counts[0] > 2 * counts[1]


def test_a_measured_shape_without_loads_is_refused() -> None:
    with pytest.raises(ValueError, match="needs loads"):
        group_list("measured", 4, 16)


@pytest.mark.parametrize(
    ("text", "why"),
    [("expert;rows\n0;1\n", r":1: the header must be expert,rows"),
     ("expert,rows\n0,1\n1,-3\n", r":3: '1,-3'"),
     ("expert,rows\n0,0\n", "no expert has rows"), ("", ":1: the header")],
)  # fmt: skip
def test_a_bad_load_file_names_its_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "load.csv").write_text(text)
    with pytest.raises(LoadFileError, match=why):
        read_loads(tmp_path / "load.csv")


def written(folder: Path, **grouped: object) -> Path:
    document = yaml.safe_load((SHIPPED / "grouped_matmul.yaml").read_text())
    document["grouped"].update(grouped)
    for preset in document["presets"].values():
        preset["group_shapes"] = "all"
    path = folder / "grouped_matmul.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_an_experiment_takes_a_measured_distribution_from_a_file_beside_it(tmp_path: Path) -> None:
    lines = "".join(f"{expert},{rows}\n" for expert, rows in enumerate(HOT))
    (tmp_path / "load.csv").write_text(f"expert,rows\n{lines}")
    found = load_experiment(written(tmp_path, group_shapes=["measured"], measured_load="load.csv"))
    made = points(found, found.presets["full"], "npu", values=[4])["int8"]
    assert {(p["group_shape"], tuple(p["group_list"])) for p in made} == {("measured", tuple(HOT))}
    (tmp_path / "load.csv").write_text(f"expert,rows\n{lines}".replace("0,30", "0,60"))
    again = load_experiment(tmp_path / "grouped_matmul.yaml")
    other = points(again, again.presets["full"], "npu", values=[4])["int8"]
    assert {p["point_id"] for p in made}.isdisjoint({p["point_id"] for p in other})


def test_a_measured_shape_and_its_loads_go_together(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="measured_load or measured_rows"):
        load_experiment(written(tmp_path, group_shapes=["measured"]))
    with pytest.raises(ExperimentError, match="load.csv: cannot be read"):
        load_experiment(written(tmp_path, group_shapes=["measured"], measured_load="load.csv"))
