"""Writes one split of one part as a series of shards of limited size."""

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from trainer.data.shard_writer import ShardWriter


@dataclass
class WrittenShard:
    """A shard that was written: its path without suffix, and its size."""

    prefix: Path
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0


class ShardSeries:
    """Writes `<directory>/<name>.00000.bin` and so on. A document never spans shards; one of more than
    `max_tokens` gets a shard of its own.

    Without documents there is no shard. On an error the unfinished shard is deleted.
    """

    def __init__(self, directory: Path, name: str, dtype: np.dtype, max_tokens: int):
        self.shards: list[WrittenShard] = []
        self._prefix = directory / name
        self._dtype = dtype
        self._max_tokens = max_tokens
        self._writer: ShardWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)
            self._writer = None

    def add(self, ids: np.ndarray, lengths: np.ndarray, text_bytes: np.ndarray) -> None:
        """Adds documents, end to end in `ids`. `lengths`, `text_bytes`: ids and bytes of text of each."""
        stops = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        first = 0
        while first < len(lengths):
            room = self._max_tokens - (self.shards[-1].tokens if self._writer else 0)
            fitting = int(np.searchsorted(stops, stops[first] + room, side="right")) - 1
            if fitting <= first and self._writer:
                self.__exit__(None, None, None)
                continue
            until = max(fitting, first + 1)
            writer, shard = self._open()
            writer.add_documents(ids[stops[first] : stops[until]], lengths[first:until])
            shard.documents += until - first
            shard.tokens += int(stops[until] - stops[first])
            shard.text_bytes += int(text_bytes[first:until].sum())
            first = until

    def _open(self) -> tuple[ShardWriter, WrittenShard]:
        if self._writer is None:
            shard = WrittenShard(self._prefix.with_name(f"{self._prefix.name}.{len(self.shards):05d}"))
            self._writer = ShardWriter(shard.prefix, self._dtype)
            self.shards.append(shard)
        return self._writer, self.shards[-1]
