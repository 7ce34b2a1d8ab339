"""QuantMatmul on the 950, one shape at a time in plain Python: rules in order, loops as loops."""

from __future__ import annotations

from dataclasses import dataclass


def up(value: int, unit: int) -> int:
    return (value + unit - 1) // unit * unit


def ceil(value: int, divisor: int) -> int:
    return (value + divisor - 1) // divisor


@dataclass
class Call:
    m: int
    k: int
    n: int
    nz: bool
    ta: bool
    tb: bool
    cores: int
    tensor_api: bool
    bias_bytes: int = 0
    scale_bytes: int = 4
    l0c: int = 262144
    l1: int = 524288


def first_base(c: Call) -> tuple[int, int, int, bool]:
    bm = up(min(c.m, 256), 16)
    bn = up(min(c.n, 256), 16 if c.tb else 32)
    bk = up(min(c.k, 128), 32)
    if ceil(c.m, bm) * ceil(c.n, bn) >= c.cores:
        return bm, bn, bk, True
    am, an = (128 if c.ta else 16), (16 if c.tb else 128)
    ak = 32 if c.ta and not c.tb else 128
    mt, nt = ceil(c.m, am), ceil(c.n, an)
    if mt * nt < c.cores and (c.ta or not c.tb):
        return bm, bn, bk, True
    mc, nc = ceil(c.m, bm), ceil(c.n, bn)
    if mt < nt or (mt == nt and an == 16):
        tm = up(ceil(c.m, mc), am)
        mc = ceil(c.m, tm)
        nc = c.cores // mc
        tn = up(ceil(c.n, nc), an)
    else:
        tn = up(ceil(c.n, nc), an)
        nc = ceil(c.n, tn)
        mc = c.cores // nc
        tm = up(ceil(c.m, mc), am)
    while tn >= 2 * tm and nc < c.cores // 2 and tn != an:
        nc *= 2
        mc = c.cores // nc
        tm, tn = up(ceil(c.m, mc), am), up(ceil(c.n, nc), an)
        mc, nc = ceil(c.m, tm), ceil(c.n, tn)
    while tm >= 2 * tn and mc < c.cores // 2 and tm != am:
        mc *= 2
        nc = c.cores // mc
        tm, tn = up(ceil(c.m, mc), am), up(ceil(c.n, nc), an)
        mc, nc = ceil(c.m, tm), ceil(c.n, tn)
    kx = 32768 // max(tm, tn)
    if kx < ak:
        return bm, bn, bk, True
    bk = min(up(c.k, ak), kx // ak * ak)
    if bk > 4095:
        bk = up(bk // 2, ak)
    return tm, tn, bk, False


def searched_base(c: Call, base: tuple[int, int, int]) -> tuple[int, int, int]:
    """Every pair of block counts the template offers; the first of the best."""
    bm, bn, bk = base
    an = 16 if c.tb else 128
    blocks = ceil(c.m, bm) * ceil(c.n, bn)
    target = max(blocks, c.cores)

    def small_tail(size: int, side: int) -> bool:
        return size > side and 0 < 2 * (size % side) < side

    def score(m: int, n: int) -> int:
        b = ceil(c.m, m) * ceil(c.n, n)
        lopsided = m * n if n >= 2 * m or m >= 2 * n else 0
        return max(0, b * m * n - c.m * c.n) + max(0, target - b) * m * n + lopsided

    if not (small_tail(c.m, bm) or small_tail(c.n, bn) or blocks < c.cores):
        return base
    pairs = [(ceil(c.m, bm), ceil(c.n, bn))]
    if blocks < c.cores:
        pairs += [
            (rows, min(ceil(c.n, an), max(1, c.cores // rows)))
            for rows in range(1, min(ceil(c.m, 16), c.cores) + 1)
        ]
    ranked = [(score(bm, bn), -1, base)]
    for place, (rows, columns) in enumerate(pairs):
        m, n = up(ceil(c.m, rows), 16), up(ceil(c.n, columns), an)
        kx = 32768 // max(m, n) // 128 * 128
        if m > c.m or n > c.n or 4 * m * n > c.l0c or kx == 0:
            continue
        k = bk
        if k > kx or k % 128:
            k = min(up(c.k, 128), kx)
            k = up(k // 2, 128) if k > 4095 else k
        ranked.append((score(m, n), place, (m, n, k)))
    return min(ranked)[2]


def edges(c: Call, bm: int, bn: int) -> tuple[int, int, int, int]:
    """(row splits, row side, column splits, column side)."""
    mb, nb = ceil(c.m, bm), ceil(c.n, bn)
    m_cnt, m_main, n_cnt, n_main = 1, 0, 1, 0
    if mb == 1 or nb == 1 or (c.ta and not c.tb):
        return m_cnt, m_main, n_cnt, n_main
    t = c.m % bm
    if t and not c.ta and (c.k % 128 == 0 or c.m >= 1792):
        w = min(4, mb)
        mw = mb // w - 1
        tail = mb - mw * w
        best = (mw + 1) * bm
        length, step = tail - 1, 1
        while length < min((bm - t) // 16, mb):
            x = up(ceil(length * bm + t, length + 1), 16)
            cost = (mw + 1 - step) * bm + step * x
            if cost <= best:
                best, m_main, m_cnt = cost, x, length + 1
            length, step = length + w, step + 1
    t = c.n % bn
    if t and c.tb and (c.k % 128 == 0 or c.n >= 1792) and not (c.k < 1024 or (c.k == 1024 and nb >= 8)):
        rounds = ceil(mb * nb, c.cores)
        main = ceil((nb - 1) * mb + mb % c.cores, c.cores)
        if mb * nb <= c.cores or (mb % c.cores == 0 and (nb % 4 == 0 or 4 % nb == 0)):
            main = rounds
        best = main * bn + (rounds - main) * t
        for length in range(1, min((bn - t) // 16, nb)):
            x = up(ceil(length * bn + t, length + 1), 16)
            last = length * (bn - x) + t
            a = 0
            if length < nb - 1:
                a = ceil((nb - 1 - length) * mb + ((length + 1) * mb) % c.cores, c.cores)
            b = min(ceil(length * mb + mb % c.cores, c.cores), rounds - a)
            cost = a * bn + b * x + (rounds - a - b) * last
            if cost < best:
                best, n_main, n_cnt = cost, x, length + 1
    return m_cnt, m_main, n_cnt, n_main


def last_round(c: Call, bm: int, bn: int, m_main: int, full: bool) -> tuple[int, int]:
    mb, nb = ceil(c.m, bm), ceil(c.n, bn)
    total = mb * nb
    tail = total % c.cores

    def whole(pieces: int) -> bool:
        return not c.nz or bn // pieces % 32 == 0

    if full:
        best, x = 1, 1
        while tail * (x + 1) <= c.cores and bn // (x + 1) >= 16:
            x += 1
            best = x if whole(x) else best
        return 1, best
    height, width = min(c.m, m_main or bm), min(c.n, bn)
    limit = {
        "m": min(c.cores // tail, ceil(height, 16)),
        "n": min(c.cores // tail, ceil(width, 16 if c.tb else 32)),
    }
    size = {"m": height, "n": width}
    order = "mn" if c.m - (mb - 1) * bm >= c.n - (nb - 1) * bn else "nm"
    pieces, valid, aligned = {"m": 1, "n": 1}, {"m": 1, "n": 1}, {"m": 1, "n": 1}
    contiguous = {"m": c.ta, "n": not c.tb}
    growing = True
    while growing:
        growing = False
        for axis in order:
            other = "n" if axis == "m" else "m"
            more = pieces[axis] + 1
            if pieces[axis] >= limit[axis] or more * pieces[other] * tail > c.cores:
                continue
            pieces[axis], growing = more, True
            if axis == "m" or whole(more):
                valid[axis] = more
                if total <= c.cores and contiguous[axis] and ceil(size[axis], more) % 32 == 0:
                    aligned[axis] = more
    chosen = {axis: aligned[axis] if aligned[axis] > 1 else valid[axis] for axis in "mn"}
    return chosen["m"], chosen["n"]


def tiling(c: Call) -> dict[str, int]:
    bm, bn, bk, use_tail = first_base(c)
    if c.tensor_api:
        bm, bn, bk = searched_base(c, (bm, bn, bk))
    mb, nb = ceil(c.m, bm), ceil(c.n, bn)
    total = mb * nb
    m_cnt, m_main, n_cnt, n_main = edges(c, bm, bn)
    rm = bm if m_cnt == 1 else m_main
    if c.tensor_api:
        full = rm * c.k <= c.l1 // 2 and mb < 4 and c.cores % mb == 0 and total > c.cores
    else:
        few = (mb in (1, 2, 4) and c.cores % mb == 0) or total <= c.cores
        full = rm * up(c.k, 32) <= 262144 and mb <= nb and few
    unsplit = bm
    if full and bm != rm:
        bm, m_cnt, m_main = rm, 1, 0
    tail = total % c.cores
    m_tile = n_tile = 1
    if use_tail and tail:
        m_tile, n_tile = last_round(c, unsplit, bn, m_main, full)
    used = c.cores if total > c.cores or tail == 0 else tail * m_tile * n_tile
    found = {
        "base_m": bm, "base_n": bn, "base_k": bk, "block_dim": used, "mTailTile": m_tile, "nTailTile": n_tile,
        "mBaseTailSplitCnt": m_cnt, "nBaseTailSplitCnt": n_cnt, "mTailMain": m_main, "nTailMain": n_main,
        "tiling_key": int(c.ta) | int(c.tb) << 2 | int(c.tensor_api) << 4 | (3 if full else 2) << 8
        | (2 << 16 if c.tensor_api else 0),
        "dbL0C": 2 if 8 * bm * bn <= c.l0c else 1,
    }  # fmt: skip
    return found | l1_numbers(c, bm, bn, bk, full)


def l1_numbers(c: Call, bm: int, bn: int, bk: int, full: bool) -> dict[str, int]:
    left = c.l1 - 2 * bn * c.scale_bytes - 2 * bn * c.bias_bytes
    if full:
        step_a = depth_a = ceil(c.k, bk)
        rest = left - bm * up(c.k, 32)
        f = ceil(128, bk) if c.tb and bk < 128 else 1
        bb = bn * bk * f
        f *= ceil(32768, bb) if rest >= 65536 else ceil(rest // 2, bb)
        if f == 1 and c.k > bk and rest > 2 * bb:
            f = 2
        step_b, depth_b = f, 2 * f
    else:
        step_a, step_b = left // 2 // (bm * bk) // 2, left // 2 // (bn * bk) // 2
        step_a = ceil(c.k, bk) if step_a * bk > c.k else step_a
        step_b = ceil(c.k, bk) if step_b * bk > c.k else step_b
        if step_a > step_b:
            step_a -= step_a % step_b
        else:
            step_b -= step_b % step_a
        depth_a, depth_b = 2 * step_a, 2 * step_b
    if not c.tensor_api:
        return {"stepKa": step_a, "stepKb": step_b, "depthA1": depth_a, "depthB1": depth_b}
    kl = (step_b if full else min(step_a, step_b)) * bk
    used = 4 * bn * kl + 2 * bn * (c.scale_bytes + c.bias_bytes)
    used += bm * up(c.k, 32) if full else 4 * bm * kl
    four = used < c.l1
    shared = min(step_a, step_b) * bk
    return {
        "nBufferNum": 4 if four else 2,
        "kAL1": shared if four else step_a * bk,
        "kBL1": shared if four else step_b * bk,
        "weightMustHitL2": int(bm < c.m or (c.k if c.tb else c.n) % 128 != 0),
    }
