"""profiler_info*.json, profiler_metadata.json, info.json*, sample.json, start_info*, end_info*.

Only these files say which versions, which rank and which profiler level made the data. Host names, addresses
and process names are personal or local and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult

_PRIVATE = re.compile(
    r"host_?name|^mac$|^pid|^netCard|_?path$|^result_dir$|^app|^dir$|_dir$|^user|^ip$|parameters$"
    r"|jobInfo|cmd",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(\d{1,3}\.){3}\d{1,3}")
_CHIPS = {"0": "Ascend310", "1": "Ascend910A", "4": "Ascend310P", "5": "Ascend910B", "7": "Ascend310B"}
_CHIPS |= {"15": "Ascend950"}


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``profiler_settings``, a row a value; facts name versions, rank, level and chip where known.

    The platform number 5 stands for 910B and 910C alike; the files do not tell them apart.
    """
    name = source_file or path.name
    data = path.read_bytes()
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        rule = "json" if data else "empty_file"
        raw = data[:4000].decode("utf-8", "backslashreplace")
        refusal = Refusal(name, None, rule, f"not JSON: {error}", raw_text=raw)
        empty = from_rows("profiler_settings", [])
        return ReadResult(empty, refused_rows(origin, "profiler_settings", [refusal]), {"rows": 0})
    values = dict(_leaves("", document))
    rows = [
        {
            **origin.columns(),
            "key": key,
            "value": orjson.dumps(value).decode(),
            "source_file": name,
            "row_index": index,
            "source_line": 1,
        }
        for index, (key, value) in enumerate(values.items())
    ]
    quarantine = refused_rows(origin, "profiler_settings", [])
    return ReadResult(from_rows("profiler_settings", rows), quarantine, {"rows": len(rows), **_facts(values)})


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every value with its dotted path; lists of plain values are one value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not _PRIVATE.search(str(key)) and not _ADDRESS.search(str(key)):
                yield from _leaves(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(f"{prefix}[{index}]", item)
    elif not (isinstance(value, str) and _ADDRESS.search(value)):
        yield prefix, value


def _facts(values: dict[str, Any]) -> dict[str, Any]:
    experimental = "config.experimental_config."
    wanted = {
        "torch_npu_version": values.get("torch_npu_version"),
        "cann_version": values.get("cann_version", values.get("cannVersion")),
        "rank_id": values.get("rank_id"),
        "profiler_level": values.get(experimental + "_profiler_level"),
        "aic_metrics": values.get(experimental + "_aic_metrics"),
        "chip": _CHIPS.get(str(values.get("platform_version"))),
        "aic_count": values.get("DeviceInfo[0].ai_core_num"),
        "aiv_count": values.get("DeviceInfo[0].aiv_num"),
        "aic_frequency_mhz": values.get("DeviceInfo[0].aic_frequency"),
        "device_id": values.get("DeviceInfo[0].id"),
        "driver": values.get("drvVersion", values.get("driver_version")),
    }
    started, ended = _times_ns(values)
    wanted |= {"started_ns": started, "ended_ns": ended}
    return {key: value for key, value in wanted.items() if value is not None}


def _times_ns(values: dict[str, Any]) -> tuple[int | None, int | None]:
    """When collecting began and ended, Unix time; torch_npu says the beginning on its monotonic clock."""
    begin = _unix_ns(values.get("collectionTimeBegin"))
    end = _unix_ns(values.get("collectionTimeEnd", values.get("end_info.collectionTimeEnd")))
    first, last = (values.get(key) for key in ("start_info.start_monotonic", "end_info.MonotonicTimeEnd"))
    if begin is None and end is not None and isinstance(first, int) and isinstance(last, int):
        begin = end - (last - first)
    return begin, end


def _unix_ns(value: Any) -> int | None:
    """A time of this century in µs (16 digits) or ns (19 digits); None for anything else."""
    text = str(value)
    return int(text) * 10 ** (19 - len(text)) if text.isdecimal() and len(text) in (16, 19) else None
