"""Two profiles, one answer: each planted change is named, with its cause, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from tests.analyse.profile_case import Kernel, changed, fused, layer, program, write_profile
from tilewatch.tasks.analyse.profiles.compare import ProfilesCompared, compare_profiles
from tilewatch.tasks.analyse.profiles.linears import linear_answers
from tilewatch.tasks.analyse.profiles.predicted_cores import check_cores
from tilewatch.tasks.analyse.profiles.rows import rows_of
from tilewatch.tasks.ingest.profiles import read_profiles
from tilewatch.tasks.predict.calls import DynamicQuantCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.predict import predict
from tilewatch.tasks.publish.profile_report.guide import cannot_answer, guide
from tilewatch.tasks.publish.profile_report.quantise_list import quantise_list
from tilewatch.tasks.read.captures.profile_capture import ProfileSide


def compared(tmp_path: Path, candidate: list[Kernel], **how: Any) -> ProfilesCompared:
    """The made program against ``candidate``, read from the files a profiler would write."""
    base = read_profiles(write_profile(tmp_path / "base_ascend_pt", program(), seed=1))
    new = read_profiles(write_profile(tmp_path / "new_ascend_pt", candidate, seed=2, **how))
    return compare_profiles(base, new, names=("base", "new"))


def told(done: ProfilesCompared) -> dict[str, str]:
    """Computing groups that are called different or stand on one side only: name to verdict."""
    return {
        f"{row['name']} {'×'.join(map(str, (row['base_input_shapes'] or [[]])[0]))}": row["verdict"]
        for row in done.rows.to_pylist()
        if row["kind"] == "group" and not row["communicates"] and row["verdict"] not in ("SAME", "UNDECIDED")
    }


def group(done: ProfilesCompared, name: str) -> dict[str, Any]:
    """The one row of groups of that name."""
    (row,) = [r for r in done.rows.to_pylist() if r["kind"] == "group" and r["name"] == name]
    found: dict[str, Any] = row
    return found


def step(done: ProfilesCompared) -> dict[str, Any]:
    """The row of the whole step."""
    found: dict[str, Any] = done.rows.slice(0, 1).to_pylist()[0]
    assert found["kind"] == "step"
    return found


def test_steps_without_a_mark_are_found_by_what_repeats(tmp_path: Path) -> None:
    done = compared(tmp_path, program())
    steps = done.base.profiles[0].steps
    assert steps.how == "found" and steps.kept.sum() == 12
    assert len(steps.model) == len([k for k in program() if k.core_kind != "COMMUNICATION"])
    assert done.level.name == "steps" and "within this pair of captures" in done.level.sentence
    assert told(done) == {}


def test_a_kernel_five_percent_slower_is_named_and_no_other(tmp_path: Path) -> None:
    slower = changed(lambda k: [replace(k, us=k.us * 1.05)] if k.op == "FusedInferAttentionScore" else [k])
    done = compared(tmp_path, slower)
    assert told(done) == {"FusedInferAttentionScore 16×16×128": "SLOWER"}
    row = group(done, "FusedInferAttentionScore")
    assert row["ratio"] == pytest.approx(1.05, abs=0.01) and row["ratio_low"] < 1.05 < row["ratio_high"]
    assert row["difference_ns"] == pytest.approx(6 * 4.4e3, rel=0.2)


def test_fewer_cores_are_the_cause(tmp_path: Path) -> None:
    starved = changed(
        lambda k: [replace(k, cores=4, us=12.0)] if (k.op, k.cores) == ("DynamicQuant", 16) else [k]
    )
    done = compared(tmp_path, starved)
    assert told(done) == {"DynamicQuant 16×2048": "SLOWER"}
    (row,) = [r for r in done.rows.to_pylist() if r["name"] == "DynamicQuant" and r["verdict"] == "SLOWER"]
    assert row["cause"] == "cores 16 → 4" and row["change"] == "matched"


def test_three_kernels_fused_into_one_are_paired_by_their_place(tmp_path: Path) -> None:
    done = compared(tmp_path, fused())
    name = "GroupedMatmul + SwiGlu + DynamicQuant → GroupedMatmulSwigluQuant"
    assert set(told(done)) == {f"{name} 128×2048"}
    row = group(done, name)
    assert row["verdict"] == "FASTER" and row["change"] == "replaced" and row["cause"].startswith("fused: ")
    assert row["base_calls"] == 18 and row["candidate_calls"] == 6
    assert row["difference_ns"] == pytest.approx(-6 * 10e3, rel=0.1)


def test_another_kernel_at_the_same_place_is_no_new_and_no_vanished_one(tmp_path: Path) -> None:
    moved = changed(lambda k: [replace(k, op="MatMulV3", us=15.0)] if k.op == "MatMulV2" else [k])
    done = compared(tmp_path, moved)
    row = group(done, "MatMulV2 → MatMulV3")
    assert row["verdict"] == "SLOWER" and row["cause"] == "other dispatch: MatMulV2 → MatMulV3"
    assert set(told(done)) == {"MatMulV2 → MatMulV3 16×2048"}


def test_an_added_format_conversion_is_named_as_one(tmp_path: Path) -> None:
    conversion = Kernel("TransData", 8.0, 16, "AI_VECTOR_CORE", "2048,4096", "INT8")
    done = compared(tmp_path, changed(lambda k: [conversion, k] if k.op == "QuantBatchMatmulV3" else [k]))
    assert told(done) == {"TransData ": "MISSING"}
    row = group(done, "TransData")
    assert row["change"] == "new" and row["candidate_calls"] == 6
    assert row["cause"] == "a conversion appeared that the base does not have"
    assert step(done)["verdict"] == "SLOWER"


def test_doubled_communication_is_judged_apart(tmp_path: Path) -> None:
    waits = changed(lambda k: [replace(k, us=70.0)] if k.overlaps else [k])
    done = compared(tmp_path, waits)
    assert told(done) == {}
    row = group(done, "hcom_allReduce_")
    assert row["communicates"] and row["verdict"] == "SLOWER" and row["ratio"] == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("marked", [True, False])
def test_one_odd_step_is_set_aside_and_named(tmp_path: Path, marked: bool) -> None:
    prefill = [replace(k, us=k.us * 9) for k in program()] + [Kernel("Tril", 50.0)]
    done = compared(tmp_path, program(), odd={5: prefill}, marked=marked)
    assert told(done) == {}
    (odd,) = done.candidate.profiles[0].steps.odd
    assert odd.step == 5 and "other" in odd.reason
    assert any("step 5 set aside" in note for note in done.notes[1])


def test_a_slow_first_step_is_set_aside(tmp_path: Path) -> None:
    warm_up = [replace(k, us=k.us * 3) for k in program()]
    done = compared(tmp_path, program(), odd={0: warm_up}, marked=True)
    assert [odd.step for odd in done.candidate.profiles[0].steps.odd] == [0]
    assert told(done) == {}


def test_the_parts_add_up_to_the_step(tmp_path: Path) -> None:
    done = compared(tmp_path, program())
    rows = done.rows.to_pylist()
    parts = [row for row in rows if row["kind"] == "part"]
    assert [row["name"] for row in parts] == ["computing", "exposed communication", "idle"]
    for side in ("base", "candidate"):
        total = step(done)[f"{side}_step_ns"]
        assert sum(row[f"{side}_step_ns"] for row in parts) == pytest.approx(total, rel=1e-9)
        categories = sum(row[f"{side}_exposed_ns"] for row in rows if row["kind"] == "category")
        assert categories == pytest.approx(total - parts[2][f"{side}_step_ns"], rel=1e-9)
        groups = sum(row[f"{side}_exposed_ns"] or 0 for row in rows if row["kind"] == "group")
        assert groups == pytest.approx(categories, rel=1e-9)
    # The collective runs 1.2 µs alone and then under the kernel behind it, so little of its 35 µs is exposed.
    assert parts[1]["base_step_ns"] < 0.9 * 6 * 35e3


def test_two_different_batches_are_paired_by_place_with_the_shape_as_cause(tmp_path: Path) -> None:
    larger = changed(lambda k: [replace(k, shapes=k.shapes.replace("16,2048", "32,2048"))])
    done = compared(tmp_path, larger)
    row = group(done, "QuantBatchMatmulV3")
    assert row["change"] == "matched" and row["cause"] == "shape 16×2048, 2048×4096 → 32×2048, 2048×4096"
    assert not [r for r in done.rows.to_pylist() if r["verdict"] == "MISSING"]


def test_another_profiler_level_gives_no_verdict_unless_overridden(tmp_path: Path) -> None:
    base = read_profiles(write_profile(tmp_path / "a_ascend_pt", program(), seed=1)).captures[0]
    other = replace(base, facts={"profiler_level": "Level2"})
    base = replace(base, facts={"profiler_level": "Level1"})
    refused = compare_profiles(ProfileSide((base,)), ProfileSide((other,)))
    assert set(refused.rows["verdict"].to_pylist()) == {"UNDECIDED"}
    assert step(refused)["refused"] == "profiler level: Level1 → Level2"
    allowed = compare_profiles(ProfileSide((base,)), ProfileSide((other,)), overrides=["profiler_level"])
    assert "SAME" in allowed.rows["verdict"].to_pylist()
    assert allowed.rows["overrides"].to_pylist()[0] == ["profiler_level"]


def test_other_parallel_groups_refuse_communication_alone(tmp_path: Path) -> None:
    base = read_profiles(write_profile(tmp_path / "a_ascend_pt", program(), seed=1)).captures[0]
    sides = [replace(base, settings={"distributed_args.tensor_model_parallel_size": size}) for size in (8, 4)]
    rows = compare_profiles(ProfileSide((sides[0],)), ProfileSide((sides[1],))).rows.to_pylist()
    refused = {row["name"] for row in rows if row["refused"]}
    assert refused == {"hcom_allReduce_"}


def test_the_layer_is_no_step(tmp_path: Path) -> None:
    """A layer repeats too, and more often; what stands before the first and behind the last is the step's."""
    done = compared(tmp_path, program())
    assert len(layer()) * 2 < len(done.base.profiles[0].steps.model)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_false_verdict_among_two_hundred_pairs_of_the_same_real_rows(shared: Path) -> None:
    """A/A: steps drawn from a real profile's own rows; at most 1 % of the judged groups may be called
    different."""
    folder = shared / "samples" / "profiler" / "msinsight-st-level2-cann83rc1" / "rank_0_ascend_pt"
    (real,) = read_profiles(folder).captures
    kernels = real.kernels.sort_by("start_ns")
    # One stretch of whole layers, about 400 rows; each pass draws the duration of a kernel from those that
    # real kernels of the same group have, so noise is the profiler's own.
    stretch = kernels.slice(600, 400)
    random = np.random.default_rng(15)
    false = judged = 0
    for _ in range(200):
        sides = [ProfileSide((replace(real, kernels=_drawn(stretch, kernels, random, 8)),)) for _ in "ab"]
        rows = compare_profiles(*sides).rows.to_pylist()
        verdicts = [row["verdict"] for row in rows if row["kind"] in ("step", "group")]
        judged += len(verdicts)
        false += sum(verdict in ("SLOWER", "FASTER", "MISSING") for verdict in verdicts)
    assert judged > 200 * 20
    assert false <= 0.01 * judged, f"{false} of {judged}"
    print(f"false verdicts: {false} of {judged}")


def _drawn(stretch: pa.Table, all_rows: pa.Table, random: np.random.Generator, steps: int) -> pa.Table:
    """``steps`` unmarked passes of ``stretch`` with durations drawn from all real rows of the same group."""
    rows = rows_of(all_rows)
    pools = {
        int(c): (rows.end - rows.start)[rows.group == i]
        for i, c in enumerate(rows.groups["code"].to_pylist())
    }
    mine = rows_of(stretch)
    codes = mine.groups["code"].to_numpy()[mine.group]
    start = mine.start - mine.start[0]
    parts = []
    for step in range(steps):
        spent = np.empty(len(codes), dtype=np.int64)
        for code in np.unique(codes):
            spent[codes == code] = random.choice(pools[int(code)], int((codes == code).sum()))
        begin = 1_700_000_000_000_000_000 + step * 2 * int((mine.end - mine.start[0]).max()) + start
        part = stretch.sort_by([("start_ns", "ascending"), ("duration_ns", "ascending")])
        for name, values in (("start_ns", begin), ("duration_ns", spent)):
            part = part.set_column(part.schema.get_field_index(name), name, pa.array(values, pa.int64()))
        none = pa.nulls(len(codes), pa.int64())
        parts.append(part.set_column(part.schema.get_field_index("step_id"), "step_id", none))
    return pa.concat_tables(parts)


def linear_programs(tmp_path: Path) -> tuple[ProfileSide, ProfileSide]:
    """BF16 against W8A8: two linears read one quantised activation, one pays and one does not."""
    bf16 = {"core_kind": "AI_CORE", "dtypes": "DT_BF16;DT_BF16", "formats": "ND;ND", "cores": 24}
    int8 = {"core_kind": "MIX_AIC", "dtypes": "INT8;INT8", "formats": "ND;FRACTAL_NZ", "cores": 24}
    pays, pays_not = "16,2048;2048,8192", "16,2048;2048,512"
    norm = Kernel("RmsNorm", 6.0, 16, "AI_VECTOR_CORE", "16,2048;2048", "DT_BF16;DT_BF16", "ND;ND")
    quant = Kernel("DynamicQuant", 6.0, 16, "AI_VECTOR_CORE")
    head = Kernel("GatherV2", 9.0, 16, "AI_VECTOR_CORE", "129280,2048;16", "DT_BF16;INT32", "ND;ND")
    before = [
        norm,
        Kernel("MatMulV2", 60.0, shapes=pays, **bf16),
        Kernel("MatMulV2", 8.0, shapes=pays_not, **bf16),
    ]
    after = [
        norm, quant,
        Kernel("QuantBatchMatmulV3", 30.0, shapes=pays, **int8),
        Kernel("QuantBatchMatmulV3", 12.0, shapes=pays_not, **int8),
    ]  # fmt: skip
    made = [
        write_profile(tmp_path / f"{name}_ascend_pt", [head, *body * 5], seed=seed)
        for seed, (name, body) in enumerate((("bf16", before), ("w8a8", after)))
    ]
    return read_profiles(made[0]), read_profiles(made[1])


def test_linears_are_matched_by_shape_and_pay_for_their_dynamic_quant(tmp_path: Path) -> None:
    done = compare_profiles(*linear_programs(tmp_path))
    answers, unmatched = linear_answers(done.base, done.candidate)
    assert unmatched == []
    by_n = {answer.linear.n: answer for answer in answers}
    assert by_n[8192].outcome == "INT8 pays" and by_n[512].outcome == "INT8 does not pay"
    # Half of the 6 µs that both linears read goes to each.
    assert by_n[8192].t_dynamic_quant_ns == pytest.approx(3e3, rel=0.05)
    assert by_n[8192].net_ns == pytest.approx(60e3 - 30e3 - 3e3, rel=0.05)
    assert by_n[512].net_ns == pytest.approx(8e3 - 12e3 - 3e3, rel=0.05)
    low, high = by_n[512].net_low_ns, by_n[512].net_high_ns
    assert low is not None and high is not None and low < -7e3 < high < 0
    assert by_n[8192].calls == 5 and "INT8 pays, at most" in by_n[8192].sentence
    listed = yaml.safe_load(quantise_list(answers))
    assert [one["weight_shape"] for one in listed["keep_bf16"]] == [[512, 2048]]


def test_linears_without_steps_say_what_is_needed(tmp_path: Path) -> None:
    few = [Kernel("MatMulV2", 8.0, shapes="16,2048;2048,512")]
    side = read_profiles(write_profile(tmp_path / "x_ascend_pt", few, seed=1, steps=1))
    done = compare_profiles(side, side)
    assert linear_answers(done.base, done.candidate) == (
        [],
        ["linears need steps on both sides: mark them, or profile more of them"],
    )


def test_cores_that_were_predicted_agree_and_others_are_findings(tmp_path: Path) -> None:
    """A DynamicQuant of few rows on the cores that the host code of one release gives it, and on fewer."""
    call = DynamicQuantCall(16, 2048)
    device, release = platform("Ascend910B3"), cann_version("8.5.0")
    expected = predict(call, device, release).block_dim
    assert expected is not None and expected > 4
    step = [
        Kernel("GatherV2", 9.0, 16, "AI_VECTOR_CORE", "129280,2048;16", "DT_BF16;INT32", "ND;ND"),
        Kernel("DynamicQuant", 5.0, expected, "AI_VECTOR_CORE", "16,2048"),
        Kernel("DynamicQuant", 5.0, 4, "AI_VECTOR_CORE", "16,4096"),
    ]
    side = read_profiles(write_profile(tmp_path / "x_ascend_pt", step, seed=1))
    done = compare_profiles(side, side)
    check = check_cores(done.base, soc="Ascend910B3", cann="8.5.0")
    assert check.agreement == 0.5 and "50.0% of 24 kernel rows" in check.sentence
    (agreeing,) = [row for row in check.rows if row.observed == row.predicted]
    assert agreeing.call == "M 16, K 2048" and agreeing.rows == 12
    (other,) = [row for row in check.rows if row.observed == 4]
    assert other.finding.startswith("this DynamicQuant (M 16, K 4096) ran on 4 of 40 vector cores; ")
    unknown = check_cores(done.base, cann="8.5.0")
    assert unknown.rows == () and "--soc says which it is" in unknown.sentence


def test_a_profile_says_what_it_cannot_answer_and_which_setting_would(tmp_path: Path) -> None:
    said = cannot_answer(
        {"profiler_level": "Level0"}, {"config.common_config.with_stack": True}, ["start_ns"]
    )
    assert any("profiler_level=Level1" in text for text in said)
    assert any("with_stack=False" in text for text in said)
    columns = ["op_type", "input_shapes", "block_dim", "step_id", "start_ns"]
    assert cannot_answer({"profiler_level": "Level1"}, {}, columns) == []
    assert all(name in guide() for name in ("torch_npu", "SGLang", "vllm-ascend", "record_shapes"))
