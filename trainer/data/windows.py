"""Windows of seq_len + 1 tokens, the samples of a run. A negative entry `~t` in an array of windows is token
t, read but not a target.
"""

from functools import cached_property

import numpy as np

from trainer.data.shards import TokenStream

PADDING = ~0


class StridedWindows:
    """The concatenated corpus, cut at stride seq_len. Each token is predicted in exactly one window, except
    the first and up to seq_len at the end.

    Windows have numbers, 0 to `num_rows` - 1; `padding` is the share of empty entries, 0 to 1. No window
    reads tokens of more than `most_documents` documents, the padding at its end counted as one.
    """

    padding = 0.0

    def __init__(self, stream: TokenStream, seq_len: int) -> None:
        self._stream, self._seq_len = stream, seq_len
        self.num_rows = max(0, stream.num_tokens - 1) // seq_len

    def cut(self, seq_len: int) -> "StridedWindows":
        """The same text in windows of another length."""
        return StridedWindows(self._stream, seq_len)

    @cached_property
    def most_documents(self) -> int:
        return most_documents(self._stream, self._seq_len)

    def read(self, numbers: np.ndarray, out: np.ndarray, rows: np.ndarray) -> None:
        """Fills row rows[i] of `out` int64 [any, seq_len + 1] with window numbers[i]."""
        self._stream.gather(numbers * self._seq_len, out, rows)

    def pieces(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The starts in the stream of the runs of tokens that a window holds, and their lengths."""
        return np.array([number * self._seq_len]), np.array([self._seq_len + 1])

    def holding(self, begin: int, end: int, most: int) -> np.ndarray:
        """The numbers of the first `most` windows with any of the tokens `begin` to `end` - 1, int64."""
        return np.arange(max(0, (begin - 1) // self._seq_len), min((end - 1) // self._seq_len + 1, most))


def most_documents(stream: TokenStream, seq_len: int) -> int:
    """How many documents a window of seq_len tokens, cut at this stride, reads tokens of at most. Reads the
    index of all shards: about 0.1 s for a million documents.
    """
    most, last, held = 0, -1, 0
    for starts, _ in stream.documents():
        windows, begun = np.unique(starts // seq_len, return_counts=True)
        if windows[0] == last:  # the block before ended within this window
            begun[0] += held
        most, last, held = max(most, int(begun.max())), int(windows[-1]), int(begun[-1])
    return most + 1  # and one that began before the window
