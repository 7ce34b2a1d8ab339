"""op_statistic, api_statistic, task_time and step traces: their values by name, old and new headers."""

from __future__ import annotations

from pathlib import Path

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import api_statistic, op_statistic, step_trace, task_time

CANN83 = "samples/profiler/msinsight-st-level2-cann83rc1/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"
LEVEL1 = "samples/profiler/msinsight-pytorch-text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"


def test_op_statistic_gives_counts_and_exact_totals(shared: Path, origin: Origin) -> None:
    table = op_statistic.read(shared / CANN83 / "op_statistic.csv", origin).table
    first = table.slice(0, 1).to_pylist()[0]
    assert (table.num_rows, first["op_type"], first["task_type"]) == (
        35,
        "FlashAttentionScoreGrad",
        "MIX_AIC",
    )
    assert (first["count"], first["total_ns"], first["mean_ns"], first["device_id"]) == (
        28,
        63128660,
        2254595,
        0,
    )
    older = op_statistic.read(shared / LEVEL1 / "op_statistic.csv", origin).table
    assert older["device_id"].null_count == older.num_rows == 33


def test_api_statistic_holds_the_host_time_of_tiling(shared: Path, origin: Origin) -> None:
    table = api_statistic.read(shared / CANN83 / "api_statistic.csv", origin).table
    (tiling,) = [row for row in table.to_pylist() if row["name"] == "ApplyAdamWV2_Tiling"]
    assert (tiling["level"], tiling["count"], tiling["total_ns"], tiling["max_ns"]) == (
        "acl",
        114,
        666300,
        29170,
    )
    assert tiling["variance"] == 34.995


def test_task_time_gives_the_tiling_key_of_the_kernel_symbol(tmp_path: Path, origin: Origin) -> None:
    header = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
    names = {
        "QuantBatchMatmulV3_ND_NZ_int8_int8_bf16_high_performance_20": "20",
        "GroupedMatmul_ab12_18446744073709551615_mix_aic": "18446744073709551615",
        "_swiglu_quant_kernel": None,
        "N/A": None,
    }
    rows = [
        f"0,{name},KERNEL_AICORE,2,{n},1.500,1764246877079027.200\t,1764246877079028.700\t"
        for n, name in enumerate(names)
    ]
    path = tmp_path / "task_time_20260522113006.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    table = task_time.read(path, origin).table
    assert table["tiling_key"].to_pylist() == list(names.values())
    assert table["name"].to_pylist()[3] is None
    row = table.slice(0, 1).to_pylist()[0]
    assert (row["start_ns"], row["end_ns"], row["duration_ns"]) == (
        1764246877079027200,
        1764246877079028700,
        1500,
    )


def test_a_step_trace_means_nanoseconds_where_it_writes_noise(shared: Path, origin: Origin) -> None:
    (row,) = step_trace.read(shared / CANN83 / "step_trace_time.csv", origin).table.to_pylist()
    assert (row["step_id"], row["device_id"]) == (13, 0)
    assert (row["computing_ns"], row["communication_ns"], row["free_ns"]) == (231290100, 420174260, 158558000)


def test_a_step_trace_without_schedule_has_no_step(shared: Path, origin: Origin) -> None:
    folder = (
        shared / "samples/profiler/npu-mfu-analyzer-sample-cann850/ascend_sample_rank0/ASCEND_PROFILER_OUTPUT"
    )
    (row,) = step_trace.read(folder / "step_trace_time.csv", origin).table.to_pylist()
    assert (row["step_id"], row["computing_ns"]) == (None, 640422560)


def test_a_cluster_step_trace_says_rank_or_stage(shared: Path, origin: Origin) -> None:
    folder = shared / "samples/profiler/msinsight-server-ut/baseline_cluster/cluster_analysis_output"
    table = step_trace.read(folder / "cluster_step_trace_time.csv", origin).table
    assert table.num_rows == 18
    assert set(table["scope"].to_pylist()) == {"rank", "stage"}
