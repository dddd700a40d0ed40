"""What a run's samples are cut from: windows of seq_len + 1 tokens. In an array of them, a negative entry is
no target: `~t` is token t read only.
"""

from typing import Protocol

import numpy as np

from trainer.data.shards import TokenStream

PADDING = ~0


class Windows(Protocol):
    """The windows of one corpus, by number: `num_rows` of them, of whose entries `padding` (0 to 1) hold
    nothing.
    """

    num_rows: int
    padding: float

    def read(self, numbers: np.ndarray, out: np.ndarray, rows: np.ndarray) -> None:
        """Fills row rows[i] of `out` int64 [any, seq_len + 1] with window numbers[i]."""
        ...

    def holding(self, begin: int, end: int) -> np.ndarray:
        """The numbers of the windows that hold any of the tokens from `begin` to `end` - 1 of the corpus,
        ascending, int64.
        """
        ...


class StridedWindows:
    """The corpus end to end, cut at stride seq_len: each token but the first, and up to seq_len at the end,
    is predicted in exactly one window.
    """

    padding = 0.0

    def __init__(self, stream: TokenStream, seq_len: int) -> None:
        self._stream, self._seq_len = stream, seq_len
        self.num_rows = max(0, stream.num_tokens - 1) // seq_len

    def read(self, numbers: np.ndarray, out: np.ndarray, rows: np.ndarray) -> None:
        self._stream.gather(numbers * self._seq_len, out, rows)

    def holding(self, begin: int, end: int) -> np.ndarray:
        return np.arange(
            max(0, (begin - 1) // self._seq_len), min((end - 1) // self._seq_len + 1, self.num_rows)
        )
