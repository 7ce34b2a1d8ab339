"""``npu-smi info`` → the state of the devices: every layout from 22.x to 26.x, with and without its header.

Column offsets differ between versions, so cells are split on ``|`` and read by their shape: two lines a chip,
the second with the bus id. ``-`` and ``NA`` are null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_VERSIONS = re.compile(r"npu-smi (\S+)\s+Version: (\S+)")
_CHIP = re.compile(r"(\d+)\s+(\S+)")
_POWER = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+)")
_PLACE = re.compile(r"(\d+)(?:\s+(\d+))?")
_BUS_ID = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")
_IDLE = re.compile(r"No running processes found in NPU (\d+)")


@dataclass(frozen=True)
class ChipState:
    """One chip (die) at one moment. Sizes are in MB as the tool prints them, pages in pages.

    ``phy_id`` and ``device`` are read only where the header names the column.
    """

    npu_id: int
    chip_id: int
    name: str
    health: str
    bus_id: str
    phy_id: int | None
    device: int | None
    power_w: float | None
    temperature_c: float | None
    hugepages_used: int | None
    hugepages_total: int | None
    aicore_percent: int | None
    memory_used_mb: int | None
    memory_total_mb: int | None
    hbm_used_mb: int | None
    hbm_total_mb: int | None


@dataclass(frozen=True)
class TenantProcess:
    """A process that holds a device."""

    npu_id: int
    chip_id: int | None
    pid: int
    name: str
    memory_mb: int | None


@dataclass(frozen=True)
class DeviceState:
    """All that one print says. ``driver_version`` may differ from the tool's.

    ``idle_npus`` are those the tool found no process on; ``incomplete_chips`` counts chips whose second line
    is missing from the print.
    """

    tool_version: str | None
    driver_version: str | None
    chips: tuple[ChipState, ...]
    processes: tuple[TenantProcess, ...]
    idle_npus: tuple[int, ...]
    incomplete_chips: int


@dataclass
class _Print:
    chips: list[ChipState] = field(default_factory=list)
    processes: list[TenantProcess] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    second_column: str | None = None
    pending: tuple[int, str, str, str] | None = None
    incomplete: int = 0


def looks_like_npu_smi(text: str) -> bool:
    """True where ``text`` has a chip or the head of the tool's table."""
    state = read_npu_smi(text)
    return bool(state.tool_version or state.chips)


def read_npu_smi(text: str) -> DeviceState:
    """Read one print; lines that are none of its rows are passed over."""
    seen = _Print()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if found := _IDLE.search(line):
            seen.idle.append(int(found[1]))
        elif len(cells) == 3:
            _chip_line(seen, cells)
        elif len(cells) == 4:
            _process_line(seen, cells)
    versions = _VERSIONS.search(text)
    return DeviceState(
        versions[1] if versions else None,
        versions[2] if versions else None,
        tuple(seen.chips),
        tuple(seen.processes),
        tuple(seen.idle),
        seen.incomplete + (seen.pending is not None),
    )


def _chip_line(seen: _Print, cells: list[str]) -> None:
    place, middle, numbers = cells
    if place.startswith("Chip"):
        seen.second_column = place.removeprefix("Chip").strip() or None
    elif _BUS_ID.fullmatch(middle) and (found := _PLACE.fullmatch(place)):
        if seen.pending is not None:
            seen.chips.append(_chip(seen, found, middle, numbers))
        seen.pending = None
    elif (found := _CHIP.fullmatch(place)) and _POWER.fullmatch(numbers):
        seen.incomplete += seen.pending is not None
        seen.pending = (int(found[1]), found[2], middle, numbers)


def _chip(seen: _Print, place: re.Match[str], bus_id: str, numbers: str) -> ChipState:
    assert seen.pending is not None
    npu_id, name, health, first = seen.pending
    power = _POWER.fullmatch(first)
    assert power is not None
    extra = int(place[2]) if place[2] else None
    pairs = _PAIR.findall(numbers)
    memory, hbm = (*pairs, (None, None), (None, None))[:2]
    return ChipState(
        npu_id=npu_id,
        chip_id=int(place[1]),
        name=name,
        health=health,
        bus_id=bus_id,
        phy_id=extra if seen.second_column == "Phy-ID" else None,
        device=extra if seen.second_column == "Device" else None,
        power_w=_number(power[1]),
        temperature_c=_number(power[2]),
        hugepages_used=_whole(power[3]),
        hugepages_total=_whole(power[4]),
        aicore_percent=_whole(numbers.split()[0]) if numbers else None,
        memory_used_mb=_whole(memory[0]),
        memory_total_mb=_whole(memory[1]),
        hbm_used_mb=_whole(hbm[0]),
        hbm_total_mb=_whole(hbm[1]),
    )


def _process_line(seen: _Print, cells: list[str]) -> None:
    place = _PLACE.fullmatch(cells[0])
    if place and cells[1].isdecimal():
        chip = int(place[2]) if place[2] else None
        seen.processes.append(TenantProcess(int(place[1]), chip, int(cells[1]), cells[2], _whole(cells[3])))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
