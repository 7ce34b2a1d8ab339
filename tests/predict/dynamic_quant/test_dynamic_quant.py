"""DynamicQuant: cores, keys and rows on both architectures."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.predict import oracle_dynamic_quant as oracle
from tilewatch.tasks.predict.calls import DynamicQuantCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import OutOfScope
from tilewatch.tasks.predict.predict import predict, predict_axis

C910 = platform("Ascend910_9391")
A950 = platform("Ascend950DT_9581")


def cores(k: int, ms: list[int], cann: str = "9.1.0") -> list[int]:
    found = predict_axis(DynamicQuantCall(1, k), "m", np.array(ms), C910, cann_version(cann))
    return found.columns["block_dim"].tolist()


def test_sixteen_rows_of_4096_run_on_sixteen_cores_before_cann_9_and_on_four_after() -> None:
    before = predict(DynamicQuantCall(16, 4096), C910, cann_version("8.5.0"))
    after = predict(DynamicQuantCall(16, 4096), C910, cann_version("9.0.0"))
    assert (before.block_dim, before.tiling_key, before.branch) == (16, "2", "generic_double_buffer")
    assert (after.block_dim, after.tiling_key, after.branch) == (4, "100", "special_last_dim")


@pytest.mark.parametrize(
    ("k", "ms", "expected"),
    [
        (1024, [1, 29, 30, 44, 64, 128, 192, 256], [1, 1, 2, 2, 4, 8, 12, 17]),
        (2048, [1, 13, 16, 32, 64, 128, 256], [1, 1, 2, 4, 9, 18, 36]),
        (
            4096,
            [3, 4, 8, 16, 32, 64, 128, 189, 192, 193, 200, 256],
            [1, 1, 2, 4, 8, 16, 32, 48, 48, 25, 25, 32],
        ),
    ],
)
def test_small_rows_share_cores_from_cann_9_on(k: int, ms: list[int], expected: list[int]) -> None:
    assert cores(k, ms) == expected


def test_an_offset_output_keeps_one_row_a_core() -> None:
    found = predict(DynamicQuantCall(16, 4096, asymmetric=True), C910, cann_version("9.1.0"))
    assert (found.op_type, found.block_dim, found.tiling_key) == ("DynamicQuantV2", 16, "2")


def test_fields_the_branch_does_not_write_are_absent() -> None:
    special = predict(DynamicQuantCall(16, 4096), C910, cann_version("9.1.0"))
    multi_row = predict(DynamicQuantCall(16, 1024), C910, cann_version("9.1.0"))
    assert "innerLoopEle" not in special.fields and "ubSize" not in special.fields
    assert "rowPerTailCore" not in multi_row.fields


def test_group_index_takes_the_grouped_keys() -> None:
    fits = predict(DynamicQuantCall(128, 1024, smooth=True, group_num=8), C910, cann_version("9.1.0"))
    long = predict(DynamicQuantCall(128, 15000, smooth=True, group_num=8), C910, cann_version("9.1.0"))
    assert (fits.tiling_key, long.tiling_key, long.fields["innerLoopTail"]) == ("7", "8", 4760)
    with pytest.raises(OutOfScope, match="group_num"):
        predict(DynamicQuantCall(128, 1024, group_num=8), A950, cann_version("9.1.0"))


def test_the_950_key_moves_when_quant_mode_gains_a_bit() -> None:
    keys = [predict(DynamicQuantCall(8, 4096), A950, cann_version(v)).tiling_key for v in ("8.5.0", "9.0.0")]
    assert keys == ["33", "65"]


def test_a_very_long_row_is_split_over_idle_cores_only_in_the_newest_version() -> None:
    old = predict(DynamicQuantCall(3, 91984), A950, cann_version("9.1.0"))
    new = predict(DynamicQuantCall(3, 91984), A950, cann_version("9.2.0-beta.2"))
    assert (old.branch, old.block_dim) == ("large_shape", 3)
    assert (new.branch, new.block_dim, new.tiling_key, new.schedule_mode) == ("large_multicore", 63, "89", 1)


def test_dealing_rows_one_by_one_gives_the_same_on_the_910() -> None:
    random = Random(1)
    for _ in range(2500):
        m = random.choice([random.randint(1, 400), random.randint(1, 20000)])
        k = random.choice([1024, 4096, 5120, 10240, random.randint(1, 40000), random.randint(1, 3000) * 8])
        vectors, smooth, small_m = random.choice([48, 40, 24]), random.random() < 0.3, random.random() < 0.7
        chip = replace(C910, vector_cores=vectors)
        found = predict(
            DynamicQuantCall(m, k, smooth=smooth), chip, cann_version("9.1.0" if small_m else "8.5.0")
        )
        most, least = found.fields["rowPerHeadCore"], found.fields.get("rowPerTailCore")
        if found.branch == "multi_row":
            least = most - 1
            most = most if found.fields["headCoreNum"] else least
        got = {
            "tiling_key": int(found.tiling_key or -1),
            "cores": found.block_dim,
            "most": most,
            "least": least,
        }
        assert got == oracle.dav_2201(m, k, vectors, chip.ub_bytes, smooth=smooth, small_m=small_m), (m, k)


def test_dealing_rows_one_by_one_gives_the_same_on_the_950() -> None:
    random = Random(2)
    for _ in range(1000):
        m = random.choice([random.randint(1, 100), random.randint(1, 20000)])
        k = random.choice([random.randint(1, 60000), random.randint(80000, 130000)])
        vectors, smooth, split = random.choice([64, 56, 72, 8]), random.random() < 0.3, random.random() < 0.7
        chip = replace(A950, vector_cores=vectors)
        version = cann_version("9.2.0-beta.2" if split else "9.1.0")
        found = predict(DynamicQuantCall(m, k, smooth=smooth), chip, version)
        expected = oracle.dav_3510(m, k, vectors, chip.ub_bytes, smooth=smooth, split_rows=split)
        most = found.fields["rowPerHeadCore"]
        assert (int(found.tiling_key or -1), found.block_dim, most) == (
            expected["tiling_key"], expected["cores"], expected["most"]
        ), (m, k)  # fmt: skip
