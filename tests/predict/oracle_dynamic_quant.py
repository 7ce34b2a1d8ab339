"""DynamicQuant on both architectures by dealing rows out and counting what each core got."""

from __future__ import annotations


def dav_2201(m: int, k: int, vectors: int, ub: int, *, smooth: bool, small_m: bool) -> dict[str, int]:
    """Key, cores and the rows of the fullest and the emptiest core."""
    width = min((ub - 1024 - 256 - 64 - 12 * 256) // (15 if smooth else 11) // 64 * 64, 16320)
    if small_m and k in (4096, 5120, 10240) and 4 <= m <= 384:
        lot = min(16384 // k, m)
        return {"tiling_key": 100} | deal_in_turn(m, lot, vectors)
    if small_m and 128 <= k <= width and k % 8 == 0:
        return {"tiling_key": 10} | deal_whole_lots(m, min(width // k, m), vectors)
    padded = -(-k // 16) * 16
    room = ub - 1024
    key = 6 if padded * (17 if smooth else 11) > room else 2 if padded * (19 if smooth else 13) < room else 0
    cores = [0] * min(vectors, m)
    for row in range(m):
        cores[row % len(cores)] += 1
    return {"tiling_key": key, "cores": len(cores), "most": max(cores), "least": min(cores)}


def deal_in_turn(m: int, lot: int, vectors: int) -> dict[str, int]:
    """Lots of rows, as many to each core as the fullest needs; the last core takes what is left."""
    lots = len(range(0, m, lot))
    each = next(n for n in range(1, lots + 1) if n * vectors >= lots)
    cores = len(range(0, lots, each))
    each = next(n for n in range(1, lots + 1) if n * cores >= lots)
    left = m
    rows = []
    for _ in range(cores):
        rows.append(min(each * lot, left))
        left -= rows[-1]
    return {"cores": cores, "most": rows[0], "least": rows[-1]}


def deal_whole_lots(m: int, lot: int, vectors: int) -> dict[str, int]:
    """Whole lots only; rows left over are spread one by one from the first core on."""
    lots = m // lot
    if lots < vectors:
        cores, each = max(1, lots), 1
    else:
        each = lots // vectors
        cores = min(vectors, lots // each)
    rows = [each * lot] * cores
    for row in range(m - sum(rows)):
        rows[row % cores] += 1
    return {"cores": cores, "most": max(rows), "least": min(rows)}


def dav_3510(m: int, k: int, vectors: int, ub: int, *, smooth: bool, split_rows: bool) -> dict[str, int]:
    """Key, cores and the rows of the fullest core; elements of a row where rows are split."""
    padded, room = -(-k // 16) * 16, ub - 1024
    once = padded * (13 if smooth else 11)
    extra = 32 * smooth + 64
    if once > room and split_rows and m <= vectors // 2 and once >= 4 * room:
        per_row = max(2, vectors // m)
        slices = [0] * per_row
        for element in range(k):
            slices[element % per_row] += 1
        return {"tiling_key": 1 + 24 + extra, "cores": per_row * m, "most": max(slices), "least": min(slices)}
    cores = [0] * min(vectors, m)
    for row in range(m):
        cores[row % len(cores)] += 1
    mode = 1 | 2 if once > room else 1 if 2 * once <= room else 0
    return {"tiling_key": mode + extra, "cores": len(cores), "most": max(cores), "least": min(cores)}
