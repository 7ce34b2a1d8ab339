"""AIV:AIC ratio of a kernel from its block columns.

Only MIX_AIC rows say it: Block is the number of cube blocks there and Mix Block the number of vector blocks.
For MIX_AIV the same quotient is no ratio (40/80 occurs on a chip with 40 vector cores), and kernels of one
core kind have none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def aiv_aic_ratio(
    task_type: pa.Array, block_dim: npt.NDArray[np.int64], mix_block_dim: npt.NDArray[np.int64]
) -> pa.Array:
    """Ratio such as ``2:1`` in lowest terms; null where the row is not MIX_AIC or a count is not positive."""
    mix = pc.fill_null(pc.equal(task_type, "MIX_AIC"), False).to_numpy(zero_copy_only=False)
    known = mix & (block_dim > 0) & (mix_block_dim > 0)
    cube_blocks, vector_blocks = block_dim[known], mix_block_dim[known]
    divisor = np.gcd(cube_blocks, vector_blocks)
    vector = pa.array(vector_blocks // divisor).cast(pa.string())
    cube = pa.array(cube_blocks // divisor).cast(pa.string())
    ratio = pc.binary_join_element_wise(vector, cube, ":")
    return ratio.take(pa.array(np.cumsum(known) - 1, mask=~known))
