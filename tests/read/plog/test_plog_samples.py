"""Real excerpts of 2020–2026 and lines of the vendor's own logger: what a person can see is a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.reader import LogFile, read_plog
from tilewatch.tasks.read.result import ReadResult

ORIGIN = Origin("0" * 32, "run", "build", "id", "ingested", "ingested", "measured")

# File → what each of its records must say. Values are read off the text by eye.
RECORDS: dict[str, list[dict[str, Any]]] = {
    "01_2020-09_host0_ge_runtime_launch": [
        {"op_type": "gatherv2d", "op_name": "0_1_GatherV2", "tiling_key": None, "block_dim": 16,
         "device_id": 0, "stream_id": 523, "task_id": 2, "pid": 13694, "source_line": 6,
         "kernel_name": "te_gatherv2d_219e053cbbb768fc0_3cf4deb0daff668d__kernel0"},
    ],
    "03_2023-07_ge_kerneltrace_launch_tilingdata": [
        {"op_type": "GatherV2", "tiling_key": None, "block_dim": 1, "stream_id": 2, "task_id": 6,
         "flip_num": 0, "kernel_name": "2_0_11_GatherV2", "pid": 370, "tid": 1432, "source_line": 22},
    ],
    "04_2023-07_ge_exception_aic_info_tiling": [
        {"op_type": "GatherV2", "tiling_key": "0", "key_source": "exception_dump", "block_dim": 32,
         "stream_id": 2, "task_id": 6, "input_shapes": [[64], [2], []],
         "input_dtypes": ["DT_FLOAT", "DT_INT32", "DT_INT32"], "input_formats": ["ND", "ND", "ND"]},
    ],
    "07_2024-09_fault_FlashAttentionScore_tilingKey_20digits": [
        {"op_type": "FlashAttentionScore", "tiling_key": "10000000000022420943", "block_dim": 20,
         "key_source": "exception_dump", "key_contradictions": None, "stream_id": 42, "task_id": 1,
         "pid": 1592077, "device_id": 0},
    ],
    "08_2025-04_fault_AddCustom_tilingKey0": [
        {"op_type": "AddCustom", "tiling_key": "0", "block_dim": 8, "workspace_bytes": 0, "stream_id": 2,
         "task_id": 0, "pid": 588579},
    ],
    "09_2025-05_fault_GatherV3_tilingKey10330": [
        {"op_type": "GatherV3", "tiling_key": "10330", "block_dim": 48, "workspace_bytes": 76801,
         "stream_id": 2, "task_id": 1, "flip_num": 0},
    ],
    "10_2025-06_IDEDD_AIC_INFO_L1_tiling": [
        {"op_type": "GatherV3", "op_name": "aclnnIndexSelect_0_L0", "tiling_key": "10330", "block_dim": 2,
         "workspace_bytes": 76801, "input_shapes": [[1, 1], [2]], "input_dtypes": ["DT_FLOAT16", "DT_INT64"],
         "stream_id": 2, "task_id": 1, "source_line": 7},
    ],
    "11_2025-06_fault_GatherV3_full_error_sequence": [
        {"op_type": "GatherV3", "tiling_key": "10330", "block_dim": 2, "workspace_bytes": 76801,
         "kernel_name": "GatherV3_7869a97190b9b4d296d9414a005b954b_high_performance_10330"},
    ],
    "14_2024-10_ASCENDCKERNEL_MatmulTiling_baseMNK": [
        {"op_type": "unknown", "base_m": 256, "base_n": 128, "base_k": 64, "m_cnt": 4, "n_cnt": 5,
         "tiling_key": None, "tid": None, "pid": 1202803},
    ],
    "17_2024-07_kernel_suffix_210000000": [
        {"op_type": "Add", "tiling_key": "210000000", "key_source": "kernel_name", "block_dim": None,
         "stream_id": 2, "task_id": 1},
    ],
    "18_2024-07_run_plog_tbe_tilingKey0_blockDim40": [
        {"op_type": "gatherv2", "op_name": "GatherV21", "tiling_key": "0", "block_dim": 40, "stream_id": 11,
         "task_id": 1, "kernel_name": "0/1_-1_0_GatherV21_tvmbin"},
    ],
    "23_9.3.0_910B4_fault_blockDim_gridDim3": [
        {"op_type": "unknown", "tiling_key": "0", "block_dim": 1, "schedule_mode": 0, "stream_id": 47,
         "kernel_name": "_Z12error_kernelPDhS_S_"},
    ],
    "24_2025-03_310P_static_bin": [
        {"op_type": "cast", "tiling_key": "0", "block_dim": 8, "stream_id": 5, "task_id": 2},
    ],
    "26_2026-09_A3_flip_num_dump_name": [
        {"op_type": "MlaPrologV3", "tiling_key": "1836449", "key_source": "kernel_name", "device_id": 9,
         "stream_id": 47, "task_id": 23064, "flip_num": 1564},
    ],
    "27_2026-05_fault_DispatchFFNCombine": [
        {"op_type": "DispatchFFNCombine", "tiling_key": "1000010", "stream_id": 3, "task_id": 6468},
    ],
    "33_2024-04_910_RealDiv_args_without_tilingKey_line": [
        {"op_type": "RealDiv", "tiling_key": "210000000", "block_dim": None, "task_id": 57783, "flip_num": 3},
    ],
}  # fmt: skip
# Launches and faults of these files say nothing about tiling: counted, not stored.
WITHOUT_TILING = {
    "02_2021-03_plog_kerneltaskevent": 4,
    "13_2026-03_superkernel_fault": 1,
    "16_2022-09_fault_before_tilingkey_era": 2,
}
FIELDS = {
    "03_2023-07_ge_kerneltrace_launch_tilingdata": ("tiling_data", "4,0,1,0,64,0,1,0,2,0,0,0,1,0,0,0,2,0,"),
    "07_2024-09_fault_FlashAttentionScore_tilingKey_20digits": (
        "tiling_data", "52,0,1,0,1,0,1048576,0,88,0,96,0,128,0,1065353216,1035273459,99999999,0,"),
    "08_2025-04_fault_AddCustom_tilingKey0": ("tiling_data", "16384,8,"),
    "09_2025-05_fault_GatherV3_tilingKey10330": ("tiling_data", "10330,0,48,0,3,0,0,0,3072,0,24,0,"),
    "10_2025-06_IDEDD_AIC_INFO_L1_tiling": ("tiling_data", "10330,0,2,0,1,0,0,0,32,0,8,0,"),
    "11_2025-06_fault_GatherV3_full_error_sequence": ("tiling_data", "10330,0,2,0,1,0,0,0,32,0,8,0,"),
    "23_9.3.0_910B4_fault_blockDim_gridDim3": ("gridDim3", "0,0,0"),
    "33_2024-04_910_RealDiv_args_without_tilingKey_line": (
        "args", "0x4f453840,0x124201ea7400,0x12420240cc00,0x1241c006dc28,0x124100011000,0x1,0x1,0x1,0x0"),
}  # fmt: skip


def read(path: Path, **options: Any) -> ReadResult:
    return read_plog([LogFile(path, path.name)], ORIGIN, census=True, **options)


def files(shared: Path) -> list[Path]:
    folder = shared / "samples" / "plog"
    return [*sorted(folder.glob("*.log")), *sorted((folder / "generated").glob("*.log"))]


def test_all_33_real_and_5_generated_files_have_no_unclassified_header_line(shared: Path) -> None:
    found = files(shared)
    assert len(found) == 38
    for path in found:
        result = read(path)
        (entry,) = result.facts["files"]
        assert entry["unclassified_lines"] == 0, path.name
        assert entry["header_lines"] > 0, path.name
        assert result.quarantine.num_rows == 0, path.name


def test_every_real_excerpt_has_exactly_the_records_a_person_sees(shared: Path) -> None:
    for path in sorted((shared / "samples" / "plog").glob("*.log")):
        result = read(path)
        expected = RECORDS.get(path.stem, [])
        assert result.table.num_rows == len(expected), path.name
        assert result.facts["launches_without_tiling"] == WITHOUT_TILING.get(path.stem, 0), path.name
        for row, values in zip(result.table.to_pylist(), expected, strict=True):
            assert {name: row[name] for name in values} == values, path.name


@pytest.mark.parametrize("stem", sorted(FIELDS))
def test_tiling_data_of_a_dump_is_kept_in_words(shared: Path, stem: str) -> None:
    (row,) = read(shared / "samples" / "plog" / f"{stem}.log").table.to_pylist()
    name, beginning = FIELDS[stem]
    assert dict(row["fields"])[name].startswith(beginning)


def test_the_argument_words_complete_what_the_logger_cut_from_the_hex_print(shared: Path) -> None:
    stem = "03_2023-07_ge_kerneltrace_launch_tilingdata"
    (row,) = read(shared / "samples" / "plog" / f"{stem}.log").table.to_pylist()
    fields = dict(row["fields"])
    assert fields["tiling_data_bytes"] == "224"
    assert len(fields["tiling_data"].split(",")) == 224 // 4
    assert fields["tiling_data"].endswith("1,0,1,0,0,0,1,0")


def test_all_29_fields_of_the_cube_tiling_print_are_kept(shared: Path) -> None:
    stem = "14_2024-10_ASCENDCKERNEL_MatmulTiling_baseMNK"
    (row,) = read(shared / "samples" / "plog" / f"{stem}.log").table.to_pylist()
    fields = dict(row["fields"])
    assert len(fields) + 3 == 29  # the three base sizes have columns of their own
    assert fields["M"] == "1024" and fields["N"] == "640" and fields["Ka"] == fields["Kb"] == "256"
    assert fields["singleCoreM"] == "512" and fields["usedL1Size"] == "295424" and fields["stepKa"] == "4"


def test_the_launch_contradicts_the_exception_dump_of_the_same_task(shared: Path, tmp_path: Path) -> None:
    folder = shared / "samples" / "plog"
    log = tmp_path / "plog-370_20230713074107861.log"
    log.write_bytes(b"".join(p.read_bytes() for p in sorted(folder.glob("0[34]_*.log"))))
    launch, dump = read(log).table.to_pylist()
    assert launch["block_dim"] == 1
    assert dump["block_dim"] == 32
    assert dump["block_contradictions"] == ["1 (launch_line)"]


def test_the_dump_and_the_fault_of_one_task_are_one_record(shared: Path, tmp_path: Path) -> None:
    folder = shared / "samples" / "plog"
    log = tmp_path / "plog-17890_202506017074109552.log"
    log.write_bytes(b"".join(p.read_bytes() for p in sorted(folder.glob("1[01]_*.log"))))
    result = read(log)
    (row,) = result.table.to_pylist()
    assert (row["tiling_key"], row["block_dim"], row["device_id"]) == ("10330", 2, 0)
    assert row["op_name"] == "aclnnIndexSelect_0_L0" and row["input_shapes"] == [[1, 1], [2]]
    assert result.facts["foreign_pids"] == {log.name: [182685]}
    assert result.facts["cann_versions"] == ["8.2.RC1"]


def test_core_limits_of_a_graph_are_facts(shared: Path) -> None:
    stem = "12_2025-04_grep_prefixed_rotated_files_core_num"
    limits = read(shared / "samples" / "plog" / f"{stem}.log").facts["core_limits"]
    assert limits == {
        "aicoreNum": {"platform": 20, "rts": 20},
        "vectorcoreNum": {"platform": 40, "rts": 40},
    }


@pytest.mark.parametrize(
    ("names", "pid", "child"),
    [
        (["8.5.0_plog-13504_20261129145533230.log"], 13504, 13508),
        (
            ["9.0.0_plog-13783_20261129145545618.log", "9.0.0_plog-13787_20261129145545628.log"],
            13783,
            13787,
        ),
        (
            ["master_plog-13886_20261129145556831.log", "master_plog-13890_20261129145556841.log"],
            13886,
            13890,
        ),
    ],
)
def test_lines_of_the_vendors_logger_join_to_one_record_a_launch(
    shared: Path, names: list[str], pid: int, child: int
) -> None:
    folder = shared / "samples" / "plog" / "generated"
    result = read_plog([LogFile(folder / name, name) for name in names], ORIGIN, cann_version="9.0.0")
    rows = sorted(result.table.to_pylist(), key=lambda row: int(row["op_sequence"]))
    assert [row["op_sequence"] for row in rows] == ["0", "1", "2", "1000", "1001", "1002", "9999"]
    assert [dict(row["fields"])["m"] for row in rows] == ["4", "5", "6", "10", "4", "5", "7"]
    assert [row["stream_id"] for row in rows] == [2, 2, 2, 3, 3, 3, 9]
    assert [row["task_id"] for row in rows] == [0, 1, 2, 1000, 1001, 1002, 9999]
    assert [row["pid"] for row in rows] == [pid] * 6 + [child]
    for row in rows:
        fields = dict(row["fields"])
        assert (row["op_type"], row["tiling_key"], row["key_source"]) == ("MatMulV3", "4162", "tiling_log")
        assert (row["block_dim"], row["used_core_num"], row["schedule_mode"]) == (32, 32, 0)
        assert (row["base_m"], row["base_n"], row["base_k"]) == (16, 256, 64)
        assert (row["m_cnt"], row["n_cnt"], row["stream_k"]) == (1, 5, True)
        assert (row["joined_by"], row["cann_version"]) == ("thread", "9.0.0")
        assert row["key_contradictions"] is None and row["block_contradictions"] is None
        # 16843264 = 0x01010200: four bytes in one word
        assert [fields[n] for n in ("mmadParam", "l1BufferNum", "l0cDB", "ubDB")] == ["0", "2", "1", "1"]
        assert fields["skSingleCoreK"] == "1366" and fields["k"] == "8192"
    # aclnnX_1 names a task but no key and no blocks
    assert result.facts["launches_without_tiling"] == 1
    assert sum(entry["records"] for entry in result.facts["files"]) == 7
