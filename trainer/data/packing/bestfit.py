"""Best-fit-decreasing packing of documents into rows; no document that fits a row is cut (Ding et al. 2024,
"Fewer Truncations Improve Language Modeling").

A document of n tokens gives n - 1 predictions. A longer one becomes rows of its own, seq_len + 1 tokens at
stride seq_len, and a rest that begins at the last row's last token, so that each of its tokens but the first
is predicted exactly once.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from trainer.system.kernels import find_place

find_place()
BLOCK = 64  # about the root of the usual number of stacks


@dataclass(frozen=True)
class Rows:
    """Row r holds pieces ends[r - 1] to ends[r] - 1; piece p is lengths[p] tokens from starts[p].

    `starts` int64 [pieces], `lengths` int32 [pieces], `ends` int64 [rows].
    """

    starts: np.ndarray
    lengths: np.ndarray
    ends: np.ndarray


def pack(starts: np.ndarray, lengths: np.ndarray, seq_len: int) -> Rows:
    """Packs documents of `lengths` tokens (int32) from `starts` (int64), both [documents], into rows of at
    most seq_len + 1 tokens.

    In a row, beginnings of documents come before rests. Documents of one token, which give no prediction, are
    left out. About 5 M documents/s.
    """
    capacity = seq_len + 1
    fits = (lengths > 1) & (lengths <= capacity)
    long = lengths > capacity
    windows, rest = (lengths[long] - 1) // seq_len, (lengths[long] - 1) % seq_len
    window_starts = np.repeat(starts[long], windows)
    window_starts += seq_len * (
        np.arange(len(window_starts)) - np.repeat(np.cumsum(windows) - windows, windows)
    )

    rest_starts = (starts[long] + windows.astype(np.int64) * seq_len)[rest > 0]
    piece_starts = np.concatenate([starts[fits], rest_starts])
    piece_lengths = np.concatenate([lengths[fits], rest[rest > 0] + 1]).astype(np.int32)
    order, ends = _rows(piece_lengths, capacity)
    return Rows(
        np.concatenate([window_starts, piece_starts[order]]),
        np.concatenate([np.full(len(window_starts), capacity, np.int32), piece_lengths[order]]),
        np.concatenate([np.arange(1, len(window_starts) + 1), len(window_starts) + ends]),
    )


@njit(cache=True, no_cfunc_wrapper=True)
def _rows(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """The pieces row by row, in their given order within a row, and the end of each row; both int64."""
    pieces = len(lengths)
    row_of = np.empty(pieces, np.int32)
    counts = np.zeros(pieces + 1, np.int64)
    rows = 0
    # Rows with r free tokens form a stack: its top is top[r], the row below a row is in `below`. `blocks`
    # counts the rows of BLOCK neighboring stacks, so that the search leaves out empty ones.
    top = np.full(capacity + 1, -1, np.int32)
    below = np.empty(pieces, np.int32)
    blocks = np.zeros(capacity // BLOCK + 1, np.int64)
    for piece in _longest_first(lengths, capacity):
        length = lengths[piece]
        free = _least_free(top, blocks, length)
        if free > capacity:
            row, free = rows, capacity
            rows += 1
        else:
            row = top[free]
            top[free] = below[row]
            blocks[free // BLOCK] -= 1
        row_of[piece] = row
        counts[row] += 1
        left = free - length
        below[row] = top[left]
        top[left] = row
        blocks[left // BLOCK] += 1

    ends = np.cumsum(counts[:rows])
    place = ends - counts[:rows]
    order = np.empty(pieces, np.int64)
    for piece in range(pieces):
        order[place[row_of[piece]]] = piece
        place[row_of[piece]] += 1
    return order, ends


@njit(cache=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)
def _longest_first(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The pieces by descending length: a stable counting sort."""
    place = np.zeros(capacity + 2, np.int64)
    for length in lengths:
        place[capacity - length + 1] += 1
    place = np.cumsum(place)
    order = np.empty(len(lengths), np.int64)
    for piece in range(len(lengths)):
        key = capacity - lengths[piece]
        order[place[key]] = piece
        place[key] += 1
    return order


@njit(cache=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)
def _least_free(top: np.ndarray, blocks: np.ndarray, length: int) -> int:
    """The number of the first stack from `length` on that is not empty; len(top) if all are."""
    free = length
    while free < len(top) and top[free] < 0:
        free = (free // BLOCK + 1) * BLOCK if blocks[free // BLOCK] == 0 else free + 1
    return min(free, len(top))
