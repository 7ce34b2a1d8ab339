"""Settings, versions and sizes beside the data, without names of people, hosts and paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import profiler_info

SAMPLES = "samples/profiler"


def test_versions_rank_and_level_are_facts(shared: Path, origin: Origin) -> None:
    path = shared / SAMPLES / "msinsight-st-level2-cann83rc1/rank_2_ascend_pt/profiler_info_2.json"
    facts = profiler_info.read(path, origin).facts
    assert (facts["torch_npu_version"], facts["cann_version"]) == ("2.7.1", "8.3.RC1")
    assert (facts["rank_id"], facts["profiler_level"]) == ("2", "Level2")


def test_an_older_file_has_no_versions_and_none_is_guessed(shared: Path, origin: Origin) -> None:
    path = shared / SAMPLES / "msinsight-pytorch-text/level0/rank0_ascend_pt/profiler_info_0.json"
    facts = profiler_info.read(path, origin).facts
    assert "cann_version" not in facts
    assert facts["profiler_level"] == "Level0"


def test_chip_and_cores_come_from_info_json_and_host_and_address_stay_behind(
    shared: Path, origin: Origin
) -> None:
    (path,) = (shared / SAMPLES / "mindinsight-msprof-2023-08").rglob("info.json.0")
    result = profiler_info.read(path, origin)
    assert (result.facts["chip"], result.facts["aic_count"]) == ("Ascend910A", 32)
    kept = str(result.table.to_pylist())
    assert not [word for word in ("HOST0000001", "C4-44-7D", "enp189", "10036") if word in kept]


def test_addresses_in_keys_are_left_out(shared: Path, origin: Origin) -> None:
    path = shared / SAMPLES / "msinsight-server-ut/metadata/profiler_metadata.json"
    result = profiler_info.read(path, origin)
    assert result.table.num_rows > 0
    assert "198.51.100" not in str(result.table.to_pylist())


@pytest.mark.parametrize("text", ["", "{", "nope"])
def test_what_is_no_json_is_refused(tmp_path: Path, origin: Origin, text: str) -> None:
    (tmp_path / "profiler_info.json").write_text(text)
    result = profiler_info.read(tmp_path / "profiler_info.json", origin)
    assert (result.table.num_rows, result.quarantine.num_rows) == (0, 1)
