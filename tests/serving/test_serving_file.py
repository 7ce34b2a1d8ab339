"""The serving file is strict: what is wrong is said with file, line, field and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.plan.experiment import load_experiments
from tilewatch.tasks.plan.serving import ExperimentError, load_serving, load_serving_experiments

EXPERIMENTS = Path(__file__).parents[2] / "flows" / "experiments"


def test_experiment_e_stands_beside_the_operators_and_neither_loader_reads_the_other_kind() -> None:
    assert list(load_serving_experiments(EXPERIMENTS)) == ["E"]
    assert list(load_experiments(EXPERIMENTS)) == ["A", "B", "C", "D"]


def test_the_reference_preset_is_the_operating_point_of_the_reference_ci() -> None:
    preset = load_serving_experiments(EXPERIMENTS)["E"].presets["reference_ci"]
    load = preset.load
    assert (load.input_tokens, load.output_tokens, load.prompts, load.max_concurrency) == (
        8000,
        1000,
        160,
        160,
    )
    assert [(g.metric, g.direction, g.limit) for g in preset.gates] == [
        ("tpot_ns", "at_most", 50e6),
        ("output_token_per_s", "at_least", 3100.0),
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("launches: 5", "launches: five", "presets.quick.launches: Input should be a valid integer"),
        ("launches: 5", "launch: 5", "presets.quick.launch: unknown key; allowed here: arguments, arms,"),
        ("{path: /health, deadline_s: 60}", "{path: health, deadline_s: 60}", "servers.reference.ready.path"),
        ("info: {quantization: null}", "inform: 1", "expect.inform: unknown key; allowed here: environment,"),
        ("weight_format: ND", "weight_format: NDD", "expect.weight_format: Input should be"),
        ("name: bf16", "name: w8a8_nd", "arms: names must be unique"),
        (
            "    server: sglang",
            "    server: vllm",
            "presets.reference_ci.server: 'vllm' is no server",
        ),
        ('--port, "{port}", --arm', "--arm", "servers.reference.command: names no {port}"),
        (
            '"{draft_model}"',
            '"{drafts}"',
            "reference_ci.arguments: {drafts} is not known; known: agent",
        ),
        ("request_timeout_s: 30", "request_rate: -1.0", "presets.smoke.load.request_rate"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    text = (EXPERIMENTS / "serving.yaml").read_text()
    assert old in text
    path = tmp_path / "serving.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ExperimentError) as caught:
        load_serving(path)
    assert f"{path}:" in str(caught.value) and expected in str(caught.value)


def test_an_arm_that_nothing_proves_is_refused(tmp_path: Path) -> None:
    text = (EXPERIMENTS / "serving.yaml").read_text()
    path = tmp_path / "serving.yaml"
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line == "        expect:\n")
    path.write_text("".join([*lines[:first], "        expect: {}\n", *lines[first + 4 :]]))
    with pytest.raises(ExperimentError, match="expects nothing: an arm that nothing proves"):
        load_serving(path)
