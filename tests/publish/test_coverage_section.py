"""The run report says which share of a decode step the catalogue covers, or that nobody knows."""

from __future__ import annotations

import pyarrow as pa

from tests.analyse.test_decode_coverage import STEP, kernels
from tilewatch.tasks.publish.run_report.coverage import UNKNOWN, coverage_sections


def runs(agent: str) -> pa.Table:
    components = pa.array([[("cann", "9.1.0")]], pa.map_(pa.string(), pa.string()))
    return pa.table(
        {
            "build": ["b"],
            "agent": [agent],
            "device_class": ["npu Ascend910_9391"],
            "build_components": components,
        }
    )


def test_shares_and_every_operator_of_an_ingested_profile_of_the_build_stand_in_the_report() -> None:
    (section,) = coverage_sections(runs("npu"), kernels(STEP))
    assert section.sentence.startswith("b: Of these steps the catalogue can sweep 33.3% of kernel time")
    assert len(section.rows) == 6 and ["b", "idle", "0", "0 ns", "10.0 µs", "no", "no"] in section.rows


def test_without_a_profile_the_share_is_said_to_be_unknown() -> None:
    (section,) = coverage_sections(runs("npu"), kernels([]))
    assert section.sentence == UNKNOWN and section.rows == []


def test_a_cpu_has_no_decode_step_to_cover() -> None:
    assert coverage_sections(runs("cpu"), kernels(STEP)) == []
