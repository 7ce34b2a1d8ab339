"""From the shape of a weight, as a log or a model prints it, to the dimensions of a call."""

from __future__ import annotations

from collections.abc import Sequence

from tilewatch.tasks.predict.errors import PredictError


def weight_columns(
    shape: Sequence[int], k: int, *, transposed: bool = False, experts: int | None = None
) -> int:
    """N of a weight [K, N], [N, K] if ``transposed``, with the experts first where there are any.

    Raises PredictError where the shape has other dimensions, or its K or experts are not those of the call.
    """
    dimensions = "[N, K]" if transposed else "[K, N]"
    if experts is not None:
        dimensions = f"[experts, {dimensions[1:]}"
    given = list(shape)
    if len(given) != dimensions.count(",") + 1:
        raise PredictError("weight_shape", f"{given}: must be {dimensions}")
    own = given[-1] if transposed else given[-2]
    if own != k:
        raise PredictError("k", f"{k}: K of x must be K of the weight, and {dimensions} is {given}: {own}")
    if experts is not None and given[0] != experts:
        raise PredictError("experts", f"{experts}: must be the first dimension of the weight {given}")
    return given[-2] if transposed else given[-1]
