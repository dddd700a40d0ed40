"""The held-out windows that a validation reads."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainer.config import CorpusShards, DataConfig
from trainer.data.packing.packed_rows import PackedRows
from trainer.data.shards import TokenStream
from trainer.data.windows import PADDING, most_documents


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
            self.fill(batch, self.numbers[first : first + batch_size])
            yield batch

    def fill(self, batch: np.ndarray, numbers: np.ndarray) -> None:
        """Reads these windows into the first rows of `batch` [any, seq_len + 1]."""
        for row, number in enumerate(numbers.tolist()):
            start = number * self.seq_len
            tokens = self.stream.window(start, min(self.seq_len + 1, self.stream.num_tokens - start))
            batch[row, : len(tokens)] = tokens


@dataclass(frozen=True)
class HeldOutRows(HeldOut):
    """The `rows` of whole documents of one corpus, by their `numbers`. `tokens` counts padding, too."""

    rows: PackedRows

    @property
    def tokens(self) -> int:
        return len(self.numbers) * self.seq_len

    @property
    def text_bytes(self) -> int:
        return round(self.corpus.validation_bytes * len(self.numbers) / self.rows.num_rows)

    @property
    def most_documents(self) -> int:
        return self.rows.most_documents

    def fill(self, batch: np.ndarray, numbers: np.ndarray) -> None:
        self.rows.read(numbers, batch, np.arange(len(numbers)))


def held_out(
    data: DataConfig, seq_len: int, max_tokens: int | None = None, packed: bool = False
) -> list[HeldOut]:
    """The held-out windows of each corpus that has any, or `packed` rows: all or, where they have more than
    `max_tokens`, as many as fit, at least one of each corpus, in proportion to their number and evenly
    spread. The choice depends on nothing else.
    """
    corpora = [corpus for corpus in data.corpora if corpus.validation]
    streams = [TokenStream(corpus.validation) for corpus in corpora]
    rows = [PackedRows(stream, seq_len, data.bot_id) if packed else None for stream in streams]
    sizes = [
        some.num_rows if some else -(-(stream.num_tokens - 1) // seq_len)
        for stream, some in zip(streams, rows, strict=True)
    ]
    total = sum(sizes)
    most = total if max_tokens is None else max_tokens // seq_len
    taken = [size if most >= total else min(size, max(1, size * most // total)) for size in sizes]
    held = []
    for corpus, stream, some, size, count in zip(corpora, streams, rows, sizes, taken, strict=True):
        windows = (corpus, stream, seq_len, np.arange(count) * size // max(count, 1))
        held.append(HeldOutRows(*windows, some) if some else HeldOut(*windows))
    return held
