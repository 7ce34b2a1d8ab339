"""An experiment file is strict: what is wrong is said with file, line, field and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.plan.experiment import ExperimentError, load_experiment, load_experiments

EXPERIMENTS = Path(__file__).parents[2] / "flows" / "experiments"


def _broken(tmp_path: Path, old: str, new: str) -> str:
    text = (EXPERIMENTS / "quant_matmul.yaml").read_text()
    assert old in text
    path = tmp_path / "broken.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path)
    return str(caught.value)


def test_the_four_operator_experiments_load_and_carry_the_shapes_of_deepseek_v4_flash() -> None:
    loaded = load_experiments(EXPERIMENTS)
    assert list(loaded) == ["A", "B", "C", "D"]
    assert {(c.linear, c.k, c.n) for c in loaded["B"].cases} >= {
        ("wq_a", 4096, 1024),
        ("wkv", 4096, 512),
        ("wq_b", 1024, 32768),
    }
    assert [(c.linear, c.k, c.n) for c in loaded["D"].cases] == [("w13", 4096, 4096), ("w2", 2048, 4096)]
    assert {96, 127, 128, 129, 160, 192} <= set(loaded["D"].axis.values)
    assert loaded["A"].axis.values == [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("k: 4096, n: 512}", "k: 4096, n: 500}", "broken.yaml:16: cases[1]: int8 FRACTAL_NZ"),
        ("linears: [wq_a], ", "linears: [wq_x], ", "presets.smoke.linears: ['wq_x'] are not among"),
        ("axis: [1, 16, 128]", "axis: [1, 999]", "presets.smoke.axis: [999] are not values of axis m"),
        ("name: m\n", "name: mm\n", "broken.yaml:8: axis.name: Input should be 'm' or 'm_e'"),
        ("processes: 5", "processes: 5, procs: 3", "presets.quick.procs: unknown key; allowed here:"),
        ("processes: 5", "processes: many", "presets.quick.processes: Input should be a valid integer"),
        ("dtype_w: int8", "dtype_w: int4", "broken.yaml:26: arms[0].dtype_w: Input should be 'int8'"),
        ("values: [1, 2", "values: [0, 2", "broken.yaml:9: axis.values[0]: Input should be greater than"),
        ("question:", "question: {", "not YAML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert expected in _broken(tmp_path, old, new)


def test_more_rows_than_the_deployment_allocates_are_refused(tmp_path: Path) -> None:
    text = (EXPERIMENTS / "grouped_matmul.yaml").read_text()
    path = tmp_path / "rows.yaml"
    path.write_text(text.replace("padded_rows: 9216", "padded_rows: 2048"))
    with pytest.raises(ExperimentError, match="more than the 2048 allocated by grouped.padded_rows"):
        load_experiment(path)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="cannot be read: No such file"):
        load_experiment(tmp_path / "none.yaml")
