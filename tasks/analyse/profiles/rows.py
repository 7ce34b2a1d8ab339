"""Kernel rows of one capture in the order of their starts, each with the code of its kernel group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.tasks.analyse.savings.exposed import COMMUNICATION
from tilewatch.tasks.sql import sql

Codes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# A kernel without an operator type (level 0) is known by its name without the numbers at its end.
_OP = r"coalesce(op_type, regexp_replace(name, '(_\d+)+$', ''))"
_GROUP = (
    f"hash({_OP}, task_type, block_dim, mix_block_dim, input_shapes, input_dtypes, input_formats, "
    "output_dtypes, output_formats)"
)
_ROWS = f"""
SELECT {_GROUP} AS code, hash({_OP}) AS op_code, start_ns, start_ns + duration_ns AS end_ns, duration_ns,
       coalesce(stream_id, -1) AS stream, coalesce(step_id, -1) AS step_id,
       coalesce(category, 'other') AS category, list_contains($1, coalesce(category, 'other')) AS communicates
FROM kernels WHERE start_ns IS NOT NULL ORDER BY start_ns, end_ns, kernel_index
"""
# Cycles are summed over the cores that ran; only kernels of one core kind say the frequency plainly.
_MHZ = """CASE
    WHEN task_type = 'AI_VECTOR_CORE'
    THEN map_extract(metrics, 'aiv_total_cycles')[1] / nullif(map_extract(metrics, 'aiv_time(us)')[1], 0)
    WHEN task_type = 'AI_CORE'
    THEN map_extract(metrics, 'aic_total_cycles')[1]
         / nullif(coalesce(map_extract(metrics, 'aicore_time(us)')[1],
                           map_extract(metrics, 'aic_time(us)')[1]), 0)
    END / block_dim"""
_GROUPS = f"""
SELECT {_GROUP} AS code, hash(any_value({_OP}), any_value(input_shapes), any_value(input_dtypes)) AS relaxed,
       any_value({_OP}) AS op, any_value(coalesce(category, 'other')) AS category,
       any_value(task_type) AS task_type,
       any_value(block_dim) AS block_dim, any_value(mix_block_dim) AS mix_block_dim,
       any_value(input_shapes) AS input_shapes, any_value(input_dtypes) AS input_dtypes,
       any_value(input_formats) AS input_formats, any_value(output_shapes) AS output_shapes,
       any_value(output_dtypes) AS output_dtypes, any_value(output_formats) AS output_formats,
       median({_MHZ}) AS mhz, bool_or(list_contains($1, coalesce(category, 'other'))) AS communicates
FROM kernels WHERE start_ns IS NOT NULL GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True)
class Rows:
    """Rows by start. ``group`` indexes ``groups``, the table of kernel groups ordered by ``code``.

    ``main`` marks the rows of the stream that computes most: only within one stream is the order of kernels
    the program's own.
    """

    group: Integers
    op: Codes
    start: Integers
    end: Integers
    step_id: Integers
    communicates: Mask
    main: Mask
    category: pa.DictionaryArray
    groups: pa.Table


def rows_of(kernels: pa.Table) -> Rows:
    """Rows of a ``kernels`` table that have a start, sorted.

    A group is operator type, shapes, dtypes, formats, task type and core counts; codes are hashes of these
    and agree between tables.
    """
    table = sql(_ROWS, {"kernels": kernels}, [list(COMMUNICATION)])
    groups = sql(_GROUPS, {"kernels": kernels}, [list(COMMUNICATION)])
    known: Codes = groups["code"].to_numpy()
    communicates = _mask(table["communicates"])
    stream = table["stream"].to_numpy()
    return Rows(
        group=np.searchsorted(known, table["code"].to_numpy()).astype(np.int64),
        op=table["op_code"].to_numpy(),
        start=table["start_ns"].to_numpy(),
        end=table["end_ns"].to_numpy(),
        step_id=table["step_id"].to_numpy(),
        communicates=communicates,
        main=_busiest(stream, communicates),
        category=table["category"].combine_chunks().dictionary_encode(),
        groups=groups,
    )


def _mask(column: pa.ChunkedArray) -> Mask:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _busiest(stream: Integers, communicates: Mask) -> Mask:
    computing = ~communicates
    if not computing.any():
        return computing
    streams, counts = np.unique(stream[computing], return_counts=True)
    return np.asarray(computing & (stream == streams[counts.argmax()]))
