"""Documents -> the shards of both splits, and a record of their contents."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import tokenizer as bpe
from pipeline.store.keys import SPLITS, TRAIN, VALIDATION
from pipeline.store.manifest import File
from pipeline.store.prefetch import ahead
from trainer.data.shard_writer import ShardWriter, token_dtype
from trainer.data.shards import bin_path, idx_path
from trainer.system.durable import write_atomically

COUNTED = ("documents", "tokens", "text_bytes")


class SplitShards:
    """Writes `<directory>/<split>/<name>.00000.bin` and `.idx`, and so on. Documents without text are left
    out and listed in the record.

    With the fast encoder, `tokenizers` encodes a sample of the documents a second time. On MismatchError the
    unfinished shards are deleted.
    """

    def __init__(
        self, directory: Path, name: str, encoder: bpe.Encoder, validation_fraction: float, shard_tokens: int
    ):
        self.directory = directory
        self.dtype = token_dtype(encoder.max_id)
        self.empty: list[str] = []
        self._encoder = encoder
        self._validation_fraction = validation_fraction
        self._series = {
            split: ShardSeries(directory / split, name, self.dtype, shard_tokens) for split in SPLITS
        }
        self._checked = bpe.Checked()

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Writes the documents of the batches, which have the columns `id` and `text`."""
        with self._series[TRAIN], self._series[VALIDATION]:
            # One batch is read while another is encoded and a third written.
            for document_ids, sizes, ids, lengths in ahead(map(self._encode, ahead(iter(batches)))):
                validates, has_text = bpe.held_out(document_ids, self._validation_fraction), sizes > 0
                for split, chosen in ((TRAIN, ~validates & has_text), (VALIDATION, validates & has_text)):
                    self._series[split].add(ids[np.repeat(chosen, lengths)], lengths[chosen], sizes[chosen])

    def _encode(self, batch: pa.RecordBatch) -> tuple[pa.Array, np.ndarray, np.ndarray, np.ndarray]:
        document_ids, texts = batch.column("id"), batch.column("text")
        sizes = pc.binary_length(texts).to_numpy()
        self.empty += document_ids.filter(pa.array(sizes == 0)).to_pylist()
        ids, lengths = self._encoder.encode(texts)
        if self._encoder.fast:
            self._encoder.check(document_ids, texts, self._checked.choose(document_ids, sizes), ids, lengths)
        return document_ids, sizes, ids, lengths

    def finish(self, record: Path, facts: dict[str, Any]) -> tuple[dict[str, File], dict[str, int]]:
        """Writes the record: `facts`, and the documents, tokens, bytes of text and hashes of each shard.
        Returns all files by table, and counts.
        """
        counts = {f"{split}_{what}": 0 for split in SPLITS for what in (*COUNTED, "shards")}
        counts["empty_documents"] = len(self.empty)
        files: dict[str, File] = {}
        shards = []
        for split, series in self._series.items():
            for number, shard in enumerate(series.shards):
                hashes = {}
                for path in (bin_path(shard.prefix), idx_path(shard.prefix)):
                    file = File.of(path, self.directory)
                    files[f"{split}.{number:05d}{path.suffix}"] = file
                    hashes[file.path] = file.sha256
                contents = {what: getattr(shard, what) for what in COUNTED}
                for what, count in (*contents.items(), ("shards", 1)):
                    counts[f"{split}_{what}"] += count
                shards.append({"files": hashes, **contents})
        content = {"dtype": self.dtype.name, **facts, "shards": shards, "empty_documents": self.empty}
        write_atomically(record, json.dumps(content, indent=1))
        return files | {"shards": File.of(record, self.directory)}, counts


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
