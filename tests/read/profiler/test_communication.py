"""communication.json: milliseconds to nanoseconds, operators, damaged ones refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import communication

CANN83 = "samples/profiler/msinsight-st-level2-cann83rc1/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"


def document(**times: Any) -> dict[str, Any]:
    base = {"Start Timestamp(us)": 1764246877147674.5, "Elapse Time(ms)": 0.43614}
    info = {"Communication Time Info": base | times, "Communication Bandwidth Info": {}}
    return {"step13": {"p2p": {}, "collective": {"hcom_a@7": info, "Total Op Info": info, "hcom_b@7": info}}}


def test_real_operators_have_exact_times_and_their_group(shared: Path, origin: Origin) -> None:
    result = communication.read(shared / CANN83 / "communication.json", origin)
    assert (result.table.num_rows, result.quarantine.num_rows) == (15, 0)
    row = result.table.slice(0, 1).to_pylist()[0]
    assert (row["name"], row["group_id"]) == ("hcom_batchSendRecv__128_3_1", "3985310405473756128")
    assert (row["step_id"], row["kind"], row["rank"]) == (13, "p2p", None)
    assert (row["elapse_ns"], row["wait_ns"], row["idle_ns"]) == (436140, 403500, 32640)
    assert row["start_ns"] == 1764246877147674500


def test_a_cluster_file_has_a_rank_for_every_row(shared: Path, origin: Origin) -> None:
    folder = shared / "samples/profiler/msinsight-server-ut/baseline_cluster/cluster_analysis_output"
    table = communication.read(folder / "cluster_communication.json", origin).table
    assert table.num_rows == 2
    assert table["rank"].null_count == 0


@pytest.mark.parametrize("value", [None, "soon", -1, True, [1]])
def test_an_operator_without_elapsed_time_is_refused_alone(
    tmp_path: Path, origin: Origin, value: Any
) -> None:
    content = document()
    content["step13"]["collective"]["hcom_bad@7"] = document(**{"Elapse Time(ms)": value})["step13"][
        "collective"
    ]["hcom_a@7"]
    (tmp_path / "communication.json").write_text(json.dumps(content))
    result = communication.read(tmp_path / "communication.json", origin)
    assert result.table["name"].to_pylist() == ["hcom_a", "hcom_b"]
    assert result.quarantine["field"].to_pylist() == ["step13/collective/hcom_bad@7"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"step": 1}', '{"step": {"p2p": []}}', "null"])
def test_a_file_of_another_shape_gives_no_row_and_no_exception(
    tmp_path: Path, origin: Origin, text: str
) -> None:
    (tmp_path / "communication.json").write_text(text)
    result = communication.read(tmp_path / "communication.json", origin)
    assert result.table.num_rows == 0
