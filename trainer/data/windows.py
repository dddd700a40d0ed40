"""Windows of seq_len + 1 tokens: the samples of a run, and the held-out ones that a validation reads. A
negative entry `~t` in an array of windows is token t, read but not a target.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainer.config import CorpusShards, DataConfig
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

    @cached_property
    def most_documents(self) -> int:
        return most_documents(self._stream, self._seq_len)

    def read(self, numbers: np.ndarray, out: np.ndarray, rows: np.ndarray) -> None:
        """Fills row rows[i] of `out` int64 [any, seq_len + 1] with window numbers[i]."""
        self._stream.gather(numbers * self._seq_len, out, rows)

    def holding(self, begin: int, end: int) -> np.ndarray:
        """The numbers of the windows that hold any of the corpus' tokens `begin` to `end` - 1, ascending,
        int64.
        """
        return np.arange(
            max(0, (begin - 1) // self._seq_len), min((end - 1) // self._seq_len + 1, self.num_rows)
        )


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


@dataclass(frozen=True)
class HeldOut:
    """The windows of seq_len tokens of one corpus, by their `numbers` from 0. A stream of n tokens gives
    n - 1 predictions; its last window may be shorter.
    """

    corpus: CorpusShards
    stream: TokenStream
    seq_len: int
    numbers: np.ndarray

    @property
    def tokens(self) -> int:
        """How many tokens are predicted."""
        ends = np.minimum((self.numbers + 1) * self.seq_len, self.stream.num_tokens - 1)
        return int((ends - self.numbers * self.seq_len).sum())

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of the text; of a subset, as many as its tokens have on average."""
        everything = self.stream.num_tokens - 1
        return round(self.corpus.validation_bytes * self.tokens / everything) if everything > 0 else 0

    @property
    def most_documents(self) -> int:
        """How many documents a window reads tokens of at most, with the padding of the last one."""
        return most_documents(self.stream, self.seq_len) + 1

    def batches(self, batch_size: int, rank: int, world_size: int) -> Iterator[np.ndarray]:
        """Yields every world_size-th batch of windows [batch_size, seq_len + 1] int64, the end padded without
        targets.

        All ranks get the same number of batches, because gathering weights takes all processes.
        """
        for together in range(0, len(self.numbers), world_size * batch_size):
            first = together + rank * batch_size
            batch = np.full((batch_size, self.seq_len + 1), PADDING, dtype=np.int64)
            for row, number in enumerate(self.numbers[first : first + batch_size].tolist()):
                start = number * self.seq_len
                tokens = self.stream.window(start, min(self.seq_len + 1, self.stream.num_tokens - start))
                batch[row, : len(tokens)] = tokens
            yield batch


def held_out(data: DataConfig, seq_len: int, max_tokens: int | None = None) -> list[HeldOut]:
    """The held-out windows of each corpus that has any: all or, where they have more than `max_tokens`, as
    many as fit, at least one of each corpus, in proportion to their number and evenly spread. The choice
    depends on nothing else.
    """
    corpora = [corpus for corpus in data.corpora if corpus.validation]
    streams = [TokenStream(corpus.validation) for corpus in corpora]
    sizes = [-(-(stream.num_tokens - 1) // seq_len) for stream in streams]
    total = sum(sizes)
    most = total if max_tokens is None else max_tokens // seq_len
    taken = [size if most >= total else min(size, max(1, size * most // total)) for size in sizes]
    return [
        HeldOut(corpus, stream, seq_len, np.arange(count) * size // max(count, 1))
        for corpus, stream, size, count in zip(corpora, streams, sizes, taken, strict=True)
    ]
