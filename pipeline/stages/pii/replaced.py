"""Texts with some of their bytes replaced."""

import numpy as np

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.pii.kinds import DOCUMENT, END, PATTERN, START


@borrowing
def _copy(source: np.ndarray, start: int, end: int, out: np.ndarray, written: int) -> int:
    """Copies `source[start:end]` to `out` at `written`; returns the position after it."""
    piece, place = source[start:end], out[written : written + end - start]
    for i in range(len(piece)):  # many times as fast as assigning a slice
        place[i] = piece[i]
    return written + end - start


@kernel
def replaced(
    data: np.ndarray, offsets: np.ndarray, spans: np.ndarray, replacements: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The bytes and offsets (from 0) of the documents with each span replaced.

    The replacement of pattern i is `replacements[starts[i]:starts[i + 1]]`.
    """
    size = offsets[-1] - offsets[0]
    for span in spans:
        size += starts[span[PATTERN] + 1] - starts[span[PATTERN]] - (span[END] - span[START])
    out = np.empty(size, np.uint8)
    out_offsets = np.empty(len(offsets), np.int64)
    out_offsets[0] = 0
    read, written, k = offsets[0], 0, 0
    for document in range(len(offsets) - 1):
        while k < len(spans) and spans[k, DOCUMENT] == document:
            pattern = spans[k, PATTERN]
            written = _copy(data, read, spans[k, START], out, written)
            written = _copy(replacements, starts[pattern], starts[pattern + 1], out, written)
            read = spans[k, END]
            k += 1
        written = _copy(data, read, offsets[document + 1], out, written)
        read = offsets[document + 1]
        out_offsets[document + 1] = written
    return out, out_offsets
