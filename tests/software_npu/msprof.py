"""The ``msprof`` of the software NPU: exports the kernels that the driver wrote as msprof's own files.

Called by torch_npu as ``msprof --export=on --output=<PROF folder>``. Columns that would hold invented
numbers (AI Core counters) are not written. SOFTWARE_NPU_MSPROF=nothing makes it export nothing, as a broken
one would.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from pathlib import Path

COLUMNS = (
    "Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State", "Task Type",
    "Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Mix Block Num",
    "HF32 Eligible", "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes",
    "Output Data Types", "Output Formats", "Context ID",
)  # fmt: skip
SETTLING_S = 1.0
"""torch_npu loses kernel_details.csv in some runs when msprof ends too soon."""


def main(arguments: list[str]) -> int:
    options = dict(argument.partition("=")[::2] for argument in arguments)
    if options.get("--export") != "on" or os.environ.get("SOFTWARE_NPU_MSPROF") == "nothing":
        return 0
    export(Path(options["--output"]))
    time.sleep(SETTLING_S)
    return 0


def export(profile: Path) -> None:
    """Write the timeline, then the kernels: torch_npu starts reading when it sees a CSV."""
    lines = (profile / "device_0/data/kernels.tsv").read_text().splitlines()
    kernels = sorted((line.split("\t") for line in lines), key=lambda cells: int(cells[6]))
    output = profile / "mindstudio_profiler_output"
    output.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d%H%M%S")
    (output / f"msprof_{stamp}.json").write_text(json.dumps(timeline(kernels)))
    with (output / f"op_summary_{stamp}.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(rows(kernels))


def timeline(kernels: list[list[str]]) -> list[dict[str, object]]:
    """One X event a kernel and the flow from its launch on the host."""
    events: list[dict[str, object]] = []
    for number, cells in enumerate(kernels):
        name, numbers = cells[0], (int(cells[i]) for i in (3, 5, 6, 7, 16))
        stream, launch_ns, start_ns, duration_ns, pid = numbers
        device = {"pid": 31, "tid": stream, "ts": microseconds(start_ns)}
        arguments = {"Task Type": cells[2], "Stream Id": stream, "Task Id": int(cells[4])}
        flow = {"cat": "HostToDevice", "name": f"HostToDevice{number}", "id": str(number)}
        events.append({"ph": "X", "name": name, "dur": duration_ns / 1000, **device, "args": arguments})
        events.append({"ph": "s", "pid": pid, "tid": pid, "ts": microseconds(launch_ns), **flow})
        events.append({"ph": "f", "bp": "e", **device, **flow})
    return events


def rows(kernels: list[list[str]]) -> list[list[str]]:
    made, free_ns = [], 0
    for name, op_type, core, stream, task, _, start, duration, blocks, mix, *tensors, _ in kernels:
        wait_ns = max(0, int(start) - free_ns) if free_ns else 0
        free_ns = int(start) + int(duration)
        shapes_in, types_in, formats_in, shapes_out, types_out, formats_out = tensors
        made.append([
            "0", "4294967295", task, stream, name, op_type, "dynamic", core, microseconds(int(start)) + "\t",
            f"{int(duration) / 1000:.3f}", f"{wait_ns / 1000:.3f}", blocks, mix, "NO",
            f'"{shapes_in}"', types_in, formats_in, f'"{shapes_out}"', types_out, formats_out, "N/A",
        ])  # fmt: skip
    return made


def microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
