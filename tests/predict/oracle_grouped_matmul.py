"""GroupedMatmul on 2201, one call at a time: scalar rules, work counted by dealing blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def up(value: int, unit: int) -> int:
    return (value + unit - 1) // unit * unit


def ceil(value: int, divisor: int) -> int:
    return (value + divisor - 1) // divisor


@dataclass
class Call:
    m: int
    k: int
    n: int
    e: int
    nz: bool
    t: int
    tw: bool = False
    y: str = "bfloat16"
    bias: bool = False
    per_token: bool = True
    list_type: int = 1
    cores: int = 24
    l1: int = 524288
    code: str = "V3"


def base(c: Call) -> tuple[int, int]:
    if 128 < c.t <= 256 or (c.y == "int32" and 0 < c.t <= 128 and c.k in (7168, 7680) and c.n == 2048):
        return (256 if c.m >= 256 else up(c.m, 16)), 128
    return (128 if c.m >= 128 else up(c.m, 16)), 256


def steps(c: Call, bm: int, bn: int) -> tuple[int, int]:
    room = c.l1 - bn * 8 - (bn * 4 if c.bias else 0)
    a_room = 262144 if bm > bn else room - 262144
    a, b = a_room // 2 // (bm * 128), (room - a_room) // 2 // (bn * 128)
    if a > b:
        a -= a % b
    elif b > a:
        b -= b % a
    return a, b


def used_cores(c: Call, bm: int, bn: int) -> int:
    columns = ceil(c.n, bn)
    used = c.cores
    if c.code == "V3":
        rows = c.m if c.m <= c.e else c.e + (c.m - c.e) // bm
        used = min(used, rows * columns)
    if 1 <= c.t <= 256 and c.e == 1:
        few_left = 3 * c.cores > columns and columns % c.cores <= c.cores // 2
        if few_left or columns < c.cores:
            used = ceil(columns, ceil(columns, c.cores))
    return used


def single_n(c: Call, bm: int, bn: int, used: int) -> tuple[int, bool]:
    """(single_n, whether the hint's rule changed it)."""
    start = 0
    if c.m <= 32 * c.e and c.nz and (not c.tw or c.n >= 2048):
        start = static(c, bn)
    if not c.nz or c.t == 0 or c.n < bn:
        return start, False
    rows = ceil(c.t, bm)
    if ceil(rows * ceil(c.n, bn) * c.e, used) <= 1:
        return start, False
    for parts in range(1, used + 1):
        width = ceil(c.n, parts)
        if width != c.n and width % bn:
            continue
        tasks = rows * ceil(c.n, width) * c.e
        if np.float32(tasks) / np.float32(up(tasks, used)) >= np.float32(0.95):
            return (width, True) if width != bn else (start, False)
    return start, False


def static(c: Call, bn: int) -> int:
    if ceil(c.n, bn) * c.e <= c.cores:
        return bn
    if c.n >= 2048:
        return 1024
    widths = range(1024 // bn * bn, 0, -bn)
    return max(widths, key=lambda width: (c.e * ceil(c.n, width) - 1) % c.cores)


def tiling(c: Call) -> dict[str, int]:
    bm, bn = base(c)
    first_bm = bm
    step_a, step_b = steps(c, bm, bn)
    depth_a = 2 * step_a
    used = used_cores(c, bm, bn)
    workspace = 16777216 + (0 if c.y == "int32" else 16 * bm * bn * used)
    width, changed = single_n(c, bm, bn, used)
    if changed:
        depth = ceil(c.k, 128)
        room = c.l1 - 2 * step_b * bn * 128 - (2048 if c.bias else 0)
        smaller = up(c.t, 16) + 16
        if depth * bm * 128 < room:
            step_a = depth_a = depth
        elif smaller < bm and depth * smaller * 128 < room:
            step_a = depth_a = depth
            bm = smaller
    two = c.list_type != 2 and (c.k <= 1024 or c.k >= 2048) and c.t >= 128 and c.per_token
    ratio = 2 if two else 0 if c.y in ("int8", "int32") else 1
    pre = c.t == 0 and c.e == 1 and used == 24
    static_api = (
        not c.bias and not pre and ratio != 2 and c.k <= 8192 and (bm, bn) == (128, 256)
        and (step_a, step_b, depth_a) == (4, 4, 8)
    )  # fmt: skip
    types = {"float16": 1, "int8": 2, "int32": 3, "bfloat16": 27}
    key = 2 + (2 << 8) + (types[c.y] << 16) + (int(c.tw) << 25) + (c.list_type << 26)
    key += (int(static_api) << 28) + (ratio << 35)
    assert first_bm >= bm
    return {
        "tiling_key": key, "block_dim": used, "workspace_bytes": workspace, "base_m": bm, "base_n": bn,
        "single_n": width, "stepKa": step_a, "stepKb": step_b, "depthA1": depth_a,
    }  # fmt: skip


def rounds(counts: list[int], base_m: int, n: int, columns: int, cores: int) -> int:
    """Deal every block of every expert to the next core and take the longest queue."""
    queues = [0] * cores
    place = 0
    for rows in counts:
        for _ in range(0, rows, base_m):
            for _ in range(0, n, columns):
                queues[place % cores] += 1
                place += 1
    return max(queues)
