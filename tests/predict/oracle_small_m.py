"""The small-M override of QuantMatmul on 2201, one shape at a time, as its text reads."""

from __future__ import annotations


def up(value: int, unit: int) -> int:
    return (value + unit - 1) // unit * unit


def override(m: int, n: int, cores: int, l1: int) -> dict[str, int] | None:
    """Base block, parts along N and K steps for K ≥ 4096, N ≥ 7168, M ≤ 256; None where the search stays."""
    base_m = up(m, 16)
    if m <= 96:
        base_n = min(32768 // base_m, 512) // 32 * 32
        if n > base_n * cores:
            return None
        base_k = min(min(32768 // base_m, 32768 // base_n) // 64 * 64, 128)
        parts, step_a, step_b = -(-n // base_n), 8, 4
    else:
        offers = []
        for width in (128, 192, 256):
            blocks = -(-n // width)
            each = -(-blocks // cores)
            used = -(-blocks // each)
            score = 7 * (width * base_m // (width + base_m)) + 10 * used - 100 * each
            if width * base_m <= 32768:
                offers.append((score, width, used))
        _, base_n, parts = max(offers, key=lambda offer: offer[0])
        base_k, step_a, step_b = 128, 4, 4
    halve_a = True
    while 2 * base_k * (step_a * base_m + step_b * base_n) > l1 - 256:
        step_a, step_b = (step_a // 2, step_b) if halve_a else (step_a, step_b // 2)
        halve_a = not halve_a
    return {
        "base_m": base_m, "base_n": base_n, "base_k": base_k, "parts": parts, "stepKa": step_a,
        "stepKb": step_b,
    }  # fmt: skip
