"""The 2201 block search, one shape at a time in plain Python: slow, without arrays, for comparison only.

``best(m, k, n, ...)`` walks the candidate tiles; sizes are in elements, costs in cycles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.predict.oracle_bursts import read_block, write_block

INFINITY = float("inf")
BIG = [
    (64, 64, 256, 0), (64, 64, 512, 0), (64, 64, 1024, 1), (64, 128, 256, 0), (64, 128, 512, 0),
    (64, 256, 256, 0), (128, 64, 256, 0), (128, 64, 512, 0), (128, 128, 256, 0), (128, 128, 512, 1),
    (256, 64, 256, 0), (96, 320, 256, 0), (128, 192, 256, 0), (128, 256, 256, 0), (192, 128, 256, 0),
    (256, 128, 256, 0), (320, 96, 256, 0), (320, 64, 256, 0), (64, 320, 256, 0), (512, 64, 128, 0),
    (64, 512, 128, 0),
]  # fmt: skip
SMALL = [(16, 256, 64, 0), (16, 256, 128, 0), (16, 256, 256, 0), (16, 256, 512, 0), (16, 64, 32, 0)]


def up(value: int, unit: int) -> int:
    return (value + unit - 1) // unit * unit


def ceil(value: int, divisor: int) -> int:
    return (value + divisor - 1) // divisor


def divide(a: float, b: float) -> float:
    """C++ division of doubles."""
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(INFINITY, a)
    return a / b


def biggest(a: float, b: float) -> float:
    """std::max: a NaN on the right is ignored."""
    return b if a < b else a


def largest_divisor(number: int, limit: int) -> int:
    return max((d for d in range(1, number + 1) if number % d == 0 and d <= limit), default=1)


@dataclass
class Chip:
    cores: int
    l1: int
    l2: int

    def bounds(self) -> tuple[float, float, float, float]:
        if self.cores == 24:
            return 280.0, 146.0, 0.7, 0.8
        if self.l2 == 201326592:
            return 234.0, 122.0, 0.85, 1.0
        return 390.0, 202.0, 0.5, 0.75


@dataclass
class Shape:
    m: int
    k: int
    n: int
    ta: bool
    tb: bool

    @property
    def inner(self) -> tuple[int, int]:
        return (self.m if self.ta else self.k), (self.k if self.tb else self.n)

    @property
    def kp(self) -> int:
        return up(self.k, 32)


def weight(size: int) -> float:
    return 1.0 if size % 512 == 0 else 2.0 if size > 512 else 2.5


def q(shape: Shape, i: int) -> int:
    """K beside a side that is held whole."""
    count = shape.kp // 32
    root = math.isqrt(count)
    if i < root:
        return 32 * next((d for d in range(i, root) if count % d == 0), count)
    return 32 * (count // largest_divisor(count, count // i))


def offers(shape: Shape, chip: Chip, mt: int, nt: int, md: int, nd: int) -> list[tuple[int, int]]:
    cores = chip.cores
    g, h = math.gcd(md, cores), math.gcd(nd, cores)
    found = {(g, min(nd, cores // g)), (min(md, cores // h), h)}
    if g == 1:
        t = max(1, min(md, cores))
        found.add((t, cores // t))
    if h == 1:
        t = max(1, min(nd, cores))
        found.add((cores // t, t))
    er = weight(shape.inner[0]) / weight(shape.inner[1])
    cuts = [math.sqrt(er * cores * nt / mt), math.sqrt(cores * md * mt / (nd * nt) / er)]
    if g == cores or h == cores:
        cuts.append(math.sqrt(cores))
    known = [d for d in range(1, cores + 1) if cores % d == 0]
    for cut in cuts:
        if cut >= cores:
            pair = (cores, cores)
        else:
            above = min(d for d in known if d >= cut)
            pair = (above, max((d for d in known if d < above), default=1))
        found |= {(min(f, md), min(cores // f, nd)) for f in pair}
    return sorted(found)


def retiled(size: int, tile: int, parts: int, cut: int) -> tuple[int, int]:
    rounds = ceil(parts, cut)
    even = 16 * ceil(up(size, 16), rounds * cut * 16)
    even_parts = ceil(size, even)
    if ceil(even_parts, ceil(even_parts, cut)) >= ceil(parts, rounds):
        return even, even_parts
    return tile, parts


def split(shape: Shape, chip: Chip, tile: tuple[int, int, int, int]) -> dict[str, int | str]:
    tm, tn, tk, _ = tile
    upper, lower, act_upper, act_lower = chip.bounds()
    kt = up(min(2 * tk, shape.k), 32)
    mt = up(min(tm, shape.m), 32 if shape.ta else 16)
    nt = up(min(tn, shape.n), 16 if shape.tb else 32)
    md, nd = ceil(shape.m, mt), ceil(shape.n, nt)
    ea, eb = weight(shape.inner[0]) * shape.m, weight(shape.inner[1]) * shape.n
    intensity = 2 * shape.m * shape.n / (ea * nd + eb * md)
    area = shape.m * shape.n
    share = 0.4 * (0.6 if area >= chip.l2 else 0.8 if area >= chip.l2 / 2 else 1.0)
    even = up(shape.m, 16) % md == 0 and up(shape.n, 16) % nd == 0
    current = min(intensity, 2 * shape.k / 2 if even else 2 * shape.k * share / 2)
    far = [shape.inner[i] % 512 != 0 or (shape.m, shape.n)[i] > chip.l2 / shape.k for i in (0, 1)]
    bound, act = (upper, act_upper) if all(far) else (lower, act_lower)
    fits_l2 = chip.l2 / shape.k >= min(shape.m, shape.n)
    best: dict[str, float] = {"bb": 2**31 - 1, "ratio": 0.0, "diff": chip.cores, "score": 0.0}
    chosen: dict[str, int | str] = {}
    for mc, nc in offers(shape, chip, mt, nt, md, nd):
        m2, md2, n2, nd2 = mt, md, nt, nd
        if intensity >= lower and not shape.ta:
            m2, md2 = retiled(shape.m, mt, md, mc)
        if intensity >= lower and shape.tb:
            n2, nd2 = retiled(shape.n, nt, nd, nc)
        found = measure(shape, chip, (m2, n2, kt, md2, nd2), (mc, nc), (ea, eb), fits_l2)
        if better(found, best, current >= upper, intensity, bound, act):
            best = {name: float(found[name]) for name in best}
            chosen = {"mt": m2, "nt": n2, "kt": kt, "md": min(mc, md2), "nd": min(nc, nd2)}
            chosen |= {"load": found["load"], "q": found["q"]}
    return chosen


def measure(shape, chip, tile, cut, reads, fits_l2):  # type: ignore[no-untyped-def]
    mt, nt, kt, md, nd = tile
    mc, nc = cut
    mco, nco = ceil(md, mc), ceil(nd, nc)
    ma, na = ceil(md, mco), ceil(nd, nco)
    la = reads[0] * (1.2 if nc == 1 else 1.0)
    lb = reads[1] * (1.2 if mc == 1 else 1.0)
    mm, nm = (1, 1) if fits_l2 else (nco, mco)

    def score(base: int, x: int, y: int) -> float:
        return base + divide(1.0, la * (x - mm) + lb * (y - nm) + 2.9 * (shape.m * mm + shape.n * nm))

    qa, qb = q(shape, ceil(65536, 32 * nt)), q(shape, ceil(65536, 32 * mt))
    found = {
        "bb": mco * nco * max(1.0, mc * nc / chip.cores),
        "ratio": ma * na / (ceil(ma * na, chip.cores) * chip.cores),
        "diff": abs(ma - na),
        "q": kt,
    }
    if shape.kp <= kt and 2 * kt * (mt + nt) <= chip.l1:
        return found | {"load": "both", "score": score(3, nc, mc if md <= mc or nd <= nc else md)}
    if md <= mc and shape.kp * mt + 2 * qa * nt <= chip.l1:
        return found | {"load": "a", "score": score(1, nc, mc), "q": qa}
    if nd <= nc and shape.kp * nt + 2 * qb * mt <= chip.l1:
        return found | {"load": "b", "score": score(1, nc, mc), "q": qb}
    return found | {"load": "none", "score": score(0, up(nd, nc), up(md, mc))}


def better(new, old, computing, intensity, bound, act):  # type: ignore[no-untyped-def]
    if computing:
        order = [(-new["bb"], -old["bb"]), (new["ratio"], old["ratio"]), (-new["diff"], -old["diff"])]
    else:
        a = min(new["ratio"], old["ratio"])
        score, ratio = (new["score"], old["score"]), (new["ratio"], old["ratio"])
        held = a >= act and intensity < bound * a * a
        order = [score, (-ratio[0], -ratio[1])] if held else [ratio, score]
        order += [(-new["diff"], -old["diff"]), (-new["bb"], -old["bb"])]
    return next((a > b for a, b in order if a != b), False)


def depths(shape: Shape, chip: Chip, t) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    kt, mt, nt, kp, l1 = t["kt"], t["mt"], t["nt"], shape.kp, chip.l1
    ak = bk = kt
    if ceil(shape.k, kt) <= 1:
        return ak, bk
    if t["load"] == "a":
        ak, bk = kp, t["q"]
        if shape.tb and kp % 512 == 0:
            last = min(kp, (l1 - kp * mt) // (2 * nt))
            bk = next((d for d in range(bk, last + 1, 32) if kp % d == 0 and d % 512 == 0), bk)
        return ak, bk
    if t["load"] == "b":
        ak, bk = t["q"], kp
        if not shape.ta and kp % 512 == 0:
            last = min(kp, (l1 - kp * nt) // (2 * mt))
            ak = next((d for d in range(ak, last + 1, 32) if kp % d == 0 and d % 512 == 0), ak)
        return ak, bk
    start = up(ceil(65536, max(mt, nt)), 32)
    ks = next((d for d in range(start, kt + 1, 32) if kt % d == 0), kt)
    ka = next((d for d in range(ks, kt + 1, 32) if d % 512 == 0), kt)
    ak, bk = (ks if shape.ta else ka), (ka if shape.tb else ks)
    grow_a = not shape.ta and (shape.tb or kp % 256 != 0)
    grow_b = shape.tb and (not shape.ta or kp % 256 != 0)
    if grow_a and grow_b:
        both = min(kp, l1 // (2 * (mt + nt))) // ka * ka
        if both:
            ak = bk = both
    if grow_a:
        z = min(kp, (l1 - 2 * bk * nt) // (2 * mt))
        if z >= ak:
            ak = z // ak * ak
            bk = 32 * largest_divisor(ak // 32, min(kp // 32, (l1 - 2 * ak * mt) // (2 * nt * 32)))
    elif grow_b:
        z = min(kp, (l1 - 2 * ak * mt) // (2 * nt))
        if z >= bk:
            bk = z // bk * bk
            ak = 32 * largest_divisor(bk // 32, min(kp // 32, (l1 - 2 * bk * nt) // (2 * mt * 32)))
    return ak, bk


def finish(shape: Shape, chip: Chip, t) -> dict[str, int]:  # type: ignore[no-untyped-def]
    ak, bk = depths(shape, chip, t)
    most, x = min(32768 // t["mt"], 32768 // t["nt"]), min(ak, bk)
    held = ceil(x, 32)
    k_l0 = held
    if most < x:
        k_l0 = largest_divisor(held, most // 32) if most >= 32 else ceil(most, 32)
    m_l0, n_l0 = ceil(t["mt"], 16), ceil(t["nt"], 16)
    m, n = ceil(shape.m, 16), ceil(shape.n, 16)
    core_m = min(ceil(ceil(m, t["md"]), m_l0) * m_l0, m)
    core_n = min(ceil(ceil(n, t["nd"]), n_l0) * n_l0, n)
    return {
        "m_parts": ceil(m, core_m), "n_parts": ceil(n, core_n), "m_l0": m_l0, "n_l0": n_l0, "k_l0": k_l0,
        "k_a_l1": ceil(ak, 32), "k_b_l1": ceil(bk, 32),
    }  # fmt: skip


def repeats(shape: Shape, r: dict[str, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """How often A and B pass through L0 and L1 for one core's part."""
    m, n, k = ceil(shape.m, 16), ceil(shape.n, 16), ceil(shape.k, 32)
    md, nd = r["m_parts"], r["n_parts"]
    ms, ns = ceil(ceil(m, md), r["m_l0"]), ceil(ceil(n, nd), r["n_l0"])
    cm, cn = min(ms * r["m_l0"], m), min(ns * r["n_l0"], n)
    r0a, r0b = cn // r["n_l0"], cm // r["m_l0"]
    a_k, b_k = r["k_a_l1"] >= k, r["k_b_l1"] >= k
    a_full, b_full = ms == 1 and a_k, ns == 1 and b_k
    if a_full and b_full:
        again = 1, 1
    elif b_full:
        again = r0a, 1
    elif a_full:
        again = 1, 1 if b_k else r0b
    elif a_k:
        again = 1, r0b
    else:
        again = r0a, 1 if b_k else r0b
    return (r0a, r0b), again


def cycles(shape: Shape, chip: Chip, r: dict[str, int], db: bool) -> float:
    md, nd = r["m_parts"], r["n_parts"]
    (r0a, r0b), (ra, rb) = repeats(shape, r)
    mp, np_ = ceil(shape.m, md), ceil(shape.n, nd)
    tm, tn, tak, tbk, t0k = 16 * r["m_l0"], 16 * r["n_l0"], 16 * r["k_a_l1"], 16 * r["k_b_l1"], 16 * r["k_l0"]
    active = min(md * nd, chip.cores)
    mr = min(md, active)
    nr = min(nd, active // mr)
    window = 8 if md * nd > 24 else max(mr, nr)
    shift = (mp != 1 or np_ != 1) and window > 2 and ceil(shape.k, tak) > window // 2
    inward = all(2 * x % 32 == 0 for x in (mp, shape.k, np_))

    def cut(tile: int, patch: int) -> int:
        return tile if inward else min(tile, patch)

    m1, n1, ka1, kb1 = cut(tm, mp), cut(tn, np_), cut(tak, shape.k), cut(tbk, shape.k)
    block_a = (ka1, m1, shape.m) if shape.ta else (m1, ka1, shape.k)
    block_b = (n1, kb1, shape.k) if shape.tb else (kb1, n1, shape.n)
    l2a, ddra = speeds(chip, block_a, nr, (1 if nr > mr else nr) if shift else nr, active)
    l2b, ddrb = speeds(chip, block_b, mr, (1 if mr >= nr else mr) if shift else mr, active)
    out = out_speed(chip, (m1, n1, shape.n), active)
    t = r["m_l0"] * r["k_l0"] * r["n_l0"]
    gamma = max(1.0, 2 * tm * t0k / 256 / t, 2 * tn * t0k / 128 / t)
    m16, n16, k16 = up(mp, 16), up(np_, 16), up(shape.k, 16)
    cube = up(m16, tm) * up(k16, tbk) * up(n16, tn) / 4096 * gamma
    a = 2 * (up(mp, tm) * up(shape.k, tak) if inward else mp * shape.k)
    b = 2 * (up(np_, tn) * up(shape.k, tbk) if inward else np_ * shape.k)
    if not shift and 2 * (shape.m * shape.k + shape.k * shape.n + shape.m * shape.n) <= chip.l2:
        mte2 = a / ddra + a * (ra - 1) / l2a + b / ddrb + b * (rb - 1) / l2b
    else:
        miss_a, miss_b = misses(shape, chip, (tm, tn, tak, tbk), (mr, nr), (ra, rb))
        mte2 = a * ra * ((1 - miss_a) / l2a + miss_a / ddra) + b * rb * ((1 - miss_b) / l2b + miss_b / ddrb)
    mte2_tile = 2 * tm * tak / ddra + 2 * tn * tbk / ddrb
    mte1 = 2 * m16 * k16 * r0a / 256 + 2 * n16 * k16 * r0b / 128
    mte1_tile = 2 * tm * t0k / 256 + 2 * tn * t0k / 128
    fix, fix_tile = 2 * mp * np_ / out, 2 * tm * tn / out
    bound = biggest(biggest(cube, mte1), mte2 + fix)
    unit = not db and not shift
    if bound == cube:
        total = bound + mte2_tile + mte1_tile + (fix_tile if db else max(fix - t, fix_tile) if unit else fix)
    elif bound == mte2 + fix:
        rest = t if db else biggest(t, cube - t - mte2) if unit else biggest(t, cube - mte2)
        total = bound + mte1_tile + rest
    else:
        total = bound + t + mte2_tile + fix
    return total * ceil(md * nd, chip.cores)


def misses(shape, chip, tile, sharing, again):  # type: ignore[no-untyped-def]
    """Share of A and of B that comes from DDR."""
    tm, tn, tak, tbk = tile
    (mr, nr), (ra, rb) = sharing, again
    sa, sb = ceil(shape.k, tak), ceil(shape.k, tbk)
    all_a, all_b = 2 * shape.m * shape.k * sa, 2 * shape.k * shape.n * sb
    some_a, some_b = 2 * mr * tm * tak * sa, 2 * nr * tn * tbk * sb
    if all_a + all_b <= chip.l2 or all_a + some_b <= chip.l2:
        return divide(1, ra * nr), divide(1, rb * mr)
    if all_b + some_a <= chip.l2 or some_a + some_b <= chip.l2:
        return 1 / nr, divide(1, rb * mr)
    return 1 / nr, 1 / mr


def memory(chip: Chip) -> tuple[int, int, float]:
    return (850, 37, 1.8) if chip.l2 == 201326592 else (530, 27, 1.5)


def issue(block, requests: int, run: int, latency: int, outstanding: int) -> float:  # type: ignore[no-untyped-def]
    rows, length, stride = block
    size = 2 * rows * length
    rate = outstanding * size / (latency * requests)
    lasting = run * size / rate
    efficiency = lasting / (lasting + latency / 2)
    return rate * efficiency * (1.0 if length == stride and 2 * length == 32 else 0.75)


def channels(chip: Chip, block, requests: int, same: int, c: int, active: int) -> float:  # type: ignore[no-untyped-def]
    rows, length, _ = block
    heat = 1 - 0.91 * math.exp(-0.053 * c * rows * max(2 * length, 128) / 1e6)
    return (
        2
        * rows
        * length
        / (requests * active / 4 / memory(chip)[2] + c * (same - 1) * requests / heat * 0.03)
    )


def speeds(chip: Chip, block, run: int, c: int, active: int) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    requests, covered, same = read_block(*block)
    chip_ddr, core_ddr, factor = memory(chip)
    mata = channels(chip, block, requests, same, c, active)
    used = 2048 / active / factor * (2 * block[0] * block[1]) / covered
    l2 = min(2550 / active, 256, issue(block, requests, run, 236, 64), 128, mata)
    ddr = min(chip_ddr / active, 256, issue(block, requests, run, 347, 64), core_ddr, used, mata)
    return l2, ddr


def out_speed(chip: Chip, block, active: int) -> float:  # type: ignore[no-untyped-def]
    requests, same = write_block(*block)
    mata = channels(chip, block, requests, same, 1, active)
    return min(128, 2550 / active, issue(block, requests, 1, 96, 48), mata)


def best(m: int, k: int, n: int, ta: bool, tb: bool, chip: Chip) -> dict[str, int]:
    """The winning tile in fractals, without its buffers."""
    shape = Shape(m, k, n, ta, tb)
    winner: dict[str, int] = {}
    cheapest = INFINITY
    for tile in SMALL if m <= 16 else BIG:
        found = finish(shape, chip, split(shape, chip, tile))
        cost = cycles(shape, chip, found, bool(tile[3]))
        if not winner or cost < cheapest:
            winner, cheapest = found, cost
    return winner
