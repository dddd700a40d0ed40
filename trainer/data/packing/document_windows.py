"""Windows of shuffled documents: the endless stream of a corpus, cut wherever a window ends."""

import numpy as np

from trainer.data.packing.document_stream import DocumentStream

# Windows in the longest piece of a document. A cut between pieces takes the context from what follows it; in
# long documents one window in so many has one. A longer piece fills more rows of a step with one document.
PIECE_WINDOWS = 4


class DocumentWindows:
    """The stream cut at stride seq_len, with the methods of StridedWindows. Windows are numbered through all
    epochs, without an end; `num_rows` fit into one epoch.
    """

    padding = 0.0

    def __init__(self, stream: DocumentStream, seq_len: int, bot_id: int) -> None:
        self.stream, self._seq_len, self._bot_id = stream, seq_len, bot_id
        self.num_rows = stream.num_tokens // seq_len

    def cut(self, seq_len: int) -> "DocumentWindows":
        """As StridedWindows.cut."""
        return DocumentWindows(self.stream, seq_len, self._bot_id)

    @property
    def most_documents(self) -> int:
        """As many as the shortest pieces that fit, with one that is cut at either end."""
        lengths, epochs = self.stream.lengths, 2 + self._seq_len // self.stream.num_tokens
        few = min(len(lengths), self._seq_len)
        # A window at the end of an epoch may hold a piece twice.
        shortest = np.repeat(np.sort(np.partition(lengths, few - 1)[:few]), epochs)
        return 2 + int(np.searchsorted(np.cumsum(shortest), self._seq_len, side="right"))

    def read(self, numbers: np.ndarray, out: np.ndarray, rows: np.ndarray) -> None:
        """As StridedWindows.read. The first token of a piece that does not begin a document is not a target,
        because it follows another document.
        """
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            at = 0
            for start, length, begins in self.stream.runs(number * self._seq_len, self._seq_len + 1):
                out[row, at : at + length] = self.stream.tokens.window(start, length)
                if begins and out[row, at] != self._bot_id:
                    out[row, at] = ~out[row, at]
                at += length

    def pieces(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """As StridedWindows.pieces."""
        runs = [*self.stream.runs(number * self._seq_len, self._seq_len + 1)]
        return np.array([run.start for run in runs]), np.array([run.length for run in runs])

    def holding(self, begin: int, end: int, most: int) -> np.ndarray:
        """As StridedWindows.holding, of the first `most` windows."""
        read = most * self._seq_len + 1
        numbers = [
            np.arange(max(0, (first - 1) // self._seq_len), (last - 1) // self._seq_len + 1)
            for first, last in self.stream.places(begin, end, read)
        ]
        found = np.unique(np.concatenate(numbers)) if numbers else np.zeros(0, np.int64)
        return found[found < most]
