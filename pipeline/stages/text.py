"""Converts a text column to the two flat arrays that compiled kernels read, and back."""

import numpy as np
import pyarrow as pa


def utf8_arrays(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The UTF-8 bytes (uint8) and the n + 1 byte offsets (int64) of a string column.

    No copy when it is `large_string`. Row i is `data[offsets[i]:offsets[i + 1]]`; offsets of a sliced column
    do not start at 0. A null reads as the empty string.
    """
    if column.null_count:
        column = column.fill_null("")
    if column.type != pa.large_string():
        column = column.cast(pa.large_string())
    _, offset_buffer, data_buffer = column.buffers()
    offsets = (
        np.frombuffer(offset_buffer, dtype=np.int64, count=len(column) + 1, offset=8 * column.offset)
        if offset_buffer
        else np.zeros(1, np.int64)
    )
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, np.uint8)
    return data, offsets


def utf8_column(data: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """A `large_string` column over valid UTF-8 `data` (uint8) and `offsets` (int64[n + 1], from 0), not
    copied.
    """
    return pa.Array.from_buffers(
        pa.large_string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
