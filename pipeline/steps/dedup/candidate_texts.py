"""The texts that verification compares, read part by part and put where each shard of clusters finds its own:
in files that are mapped, not read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.stages import dedup
from pipeline.steps.dedup.signatures import Runs, Signed
from pipeline.store.engine import Engine
from pipeline.store.parquet import kept_ids


class Wanted(NamedTuple):
    """Texts to fetch: the global row of a document with each, its number, and which of `total` shards
    needs it.
    """

    rows: np.ndarray
    texts: np.ndarray
    shards: np.ndarray
    total: int


@dataclass(frozen=True)
class Fetch:
    """Some documents of a part, by their rows among those that dedup looks at (ascending), each with the text
    that it stands for and its shard.
    """

    piece: Signed
    rows: np.ndarray
    texts: np.ndarray
    shards: np.ndarray

    def write(self, scratch: Path, shards: int, params: dedup.DedupParams) -> Path:
        """One record batch for each shard. Row groups without one of the documents are not decompressed."""
        sets = dedup.concat_sets([dedup.shingle_sets(batch, params) for batch in self._batches()])
        shingles = pa.LargeListArray.from_arrays(pa.array(sets.offsets), pa.array(sets.hashes))
        keys = pa.FixedSizeListArray.from_arrays(pa.array(self._keys(params.bands).reshape(-1)), params.bands)
        whole = pa.record_batch({"text": self.texts, "keys": keys, "shingles": shingles})
        path = scratch / f"{self.piece.here}.arrow"
        with pa.ipc.new_file(str(path), whole.schema) as writer:
            for shard in range(shards):
                writer.write_batch(whole.filter(pa.array(self.shards == shard)))
        return path

    def _batches(self) -> list[pa.RecordBatch]:
        keep = [kept_ids(path) for path in self.piece.sources[1:]]
        found = []
        start = 0
        with pq.ParquetFile(self.piece.sources[0]) as file:
            for index in range(file.num_row_groups):
                ids = (
                    file.read_row_group(index, columns=["id"], use_threads=False)
                    .column("id")
                    .combine_chunks()
                )
                kept = np.ones(len(ids), bool)
                for among in keep:
                    kept &= pc.is_in(ids, value_set=among).to_numpy(zero_copy_only=False)
                places = np.flatnonzero(kept)
                here = self.rows[slice(*np.searchsorted(self.rows, [start, start + len(places)]))] - start
                start += len(places)
                if len(here):
                    texts = file.read_row_group(index, columns=["text"], use_threads=False).combine_chunks()
                    found += texts.take(pa.array(places[here])).combine_chunks().to_batches()
        return found

    def _keys(self, bands: int) -> np.ndarray:
        """The band keys of the documents, uint64[n, bands]."""
        found = np.empty((len(self.rows), bands), np.uint64)
        by_row = np.empty(self.piece.rows, np.uint64)
        runs = Runs(self.piece.runs)
        for band in range(bands):
            keys, rows = runs[band + 1]
            by_row[rows] = keys
            found[:, band] = by_row[self.rows]
        return found


def fetch(
    engine: Engine, signed: Sequence[Signed], wanted: Wanted, scratch: Path, params: dedup.DedupParams
) -> list[Path]:
    """Files that hold the wanted texts, in a record batch for each shard."""
    order = np.argsort(wanted.rows)
    rows, texts, shards = wanted.rows[order], wanted.texts[order], wanted.shards[order]
    found = [(piece, piece.among(rows)) for piece in signed]
    tasks = [
        Fetch(piece, rows[here] - piece.start, texts[here], shards[here])
        for piece, here in found
        if here.start < here.stop
    ]
    input_bytes = sum(task.piece.sources[0].stat().st_size for task in tasks)
    return list(
        engine.map(
            _Writing(scratch, wanted.total, params), tasks, input_bytes=input_bytes, what="dedup evidence"
        )
    )


@dataclass(frozen=True)
class _Writing:
    """`Fetch.write` with what is the same for all, picklable for worker processes."""

    scratch: Path
    shards: int
    params: dedup.DedupParams

    def __call__(self, task: Fetch) -> Path:
        return task.write(self.scratch, self.shards, self.params)


def read(paths: Sequence[Path], shard: int) -> tuple[np.ndarray, np.ndarray, dedup.ShingleSets]:
    """The texts of one shard from all files: their numbers, band keys and shingles."""
    batches = [pa.ipc.open_file(pa.memory_map(str(path))).get_batch(shard) for path in paths]
    texts = np.concatenate([np.zeros(0, np.int64), *(batch.column("text").to_numpy() for batch in batches)])
    keys = [
        np.asarray(batch.column("keys").flatten()).reshape(batch.num_rows, -1)
        for batch in batches
        if batch.num_rows
    ]
    sets = [
        dedup.ShingleSets(
            np.asarray(batch.column("shingles").offsets), np.asarray(batch.column("shingles").values)
        )
        for batch in batches
    ]
    return texts, np.concatenate(keys) if keys else np.zeros((0, 1), np.uint64), dedup.concat_sets(sets)
