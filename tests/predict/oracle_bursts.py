"""Bus requests of a block by walking its bytes: every row is cut burst by burst, no closed forms."""

from __future__ import annotations


def read_block(rows: int, length: int, stride: int) -> tuple[int, int, int]:
    """(requests, bytes covered, worst collision) of reading ``rows`` × ``length`` 2-byte elements."""
    size, step = 2 * length, 2 * stride
    if length == stride and size in (32, 64, 128, 160, 192, 224, 256):
        rows, size = 1, rows * size
    bursts: list[int] = []
    for address in row_starts(rows, size, step):
        bursts += row_bursts(address, size)
    return len(bursts), sum(bursts), collisions(rows, size, step)


def row_starts(rows: int, size: int, step: int) -> list[int]:
    """Addresses modulo 512 the rows count as starting at, the first always at 0."""
    if step % 128 != 0 or step % 512 in (0, 256):
        return [row * step for row in range(rows)]
    further = rows - 1
    cycle = [0, 128, 256, 384]
    rest = further % 4
    first = 4 - rest if step % 384 == 0 else 1
    return [0, *cycle * (further // 4), *cycle[first : first + rest]]


def row_bursts(address: int, size: int) -> list[int]:
    """Bursts of one row: up to a 128-byte boundary, then by what the address allows."""
    bursts = []
    if address % 128:
        bursts.append(128)
        size -= 128 - address % 128
        address += 128 - address % 128
    while size > 0:
        here = address % 512
        if here == 384 or here == 128 or size <= 128:
            burst = 128
        elif here == 256:
            burst = 256 if size >= 256 else 128
        else:
            burst = 512 if size >= 512 else 256 if size >= 256 else 128
        bursts.append(burst)
        size, address = size - burst, address + burst
    return bursts


def collisions(rows: int, size: int, step: int) -> int:
    def at_512(s: int) -> int:
        return 1 if s <= 128 or s == 256 or s >= 512 else 2 if s <= 384 else 3

    at_384 = 1 if size <= 128 else at_512(size - 128)
    at_256 = 1 if size <= 128 else 2 if size < 256 else at_512(size - 256)
    at_128 = 1 if size <= 128 else 2 if size <= 256 else 3 if size < 384 else max(2, at_512(size - 384))
    by_start = [at_512(size), at_128, at_256, at_384]
    reached = min(4, rows)
    if step % 512 == 0 or rows == 1:
        return by_start[0]
    if step % 512 == 128:
        return max(by_start[:1] + by_start[1:reached])
    if step % 512 == 256:
        return max(by_start[0], by_start[2])
    if step % 512 == 384:
        return max(by_start[4 - reached :])
    return max(by_start) + 1


def write_block(rows: int, length: int, stride: int) -> tuple[int, int]:
    """(requests, worst collision) of writing ``rows`` × ``length`` 2-byte elements."""
    size, step = 2 * length, 2 * stride
    if size <= 256 and length == stride:
        rows, size = 1, rows * size
    whole, rest = divmod(size, 256)
    from_256 = whole + (rest + 127) // 128
    from_128 = (size + 127) // 128
    count = from_256
    for row in range(1, rows):
        address = row * step
        if step % 128 == 0 and step % 256:
            # The model gives the larger half of the further rows to the odd multiples of 128.
            count += from_128 if row % 2 else from_256
        elif address % 256 == 0:
            count += from_256
        elif address % 128 == 0:
            count += from_128
        else:
            count += 3 * whole + (int((rest - (128 - address % 128) + 127) / 128) + 1 if rest else 0)
    return count, write_collisions(size, step)


def write_collisions(size: int, step: int) -> int:
    def aligned(s: int) -> int:
        if s <= 128 or s == 256:
            return 1
        return 2 if s <= 384 or s >= 512 else 3

    if step % 128 == 0:
        return max(aligned(size), aligned(size - 512))
    return 2 if size <= 128 else 3 if size <= 256 else 5 if size <= 384 else 6
