"""Fetches the texts that verification compares, part by part, into memory-mapped files with one record batch
for each range of clusters.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import dedup
from pipeline.steps.dedup.signatures import Runs, Signed
from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile
from pipeline.store.parquet import kept_ids, parquet_file
from trainer.system.durable import whole_file


class WantedTexts(NamedTuple):
    """Texts to fetch. For each: the global row of a document that has it, its number, and which of `total`
    ranges of clusters needs it.
    """

    rows: np.ndarray
    texts: np.ndarray
    ranges: np.ndarray
    total: int


@dataclass(frozen=True)
class Fetch:
    """Documents to fetch from one part. `rows` are local and ascend; `texts`, `ranges` as in WantedTexts."""

    piece: Signed
    rows: np.ndarray
    texts: np.ndarray
    ranges: np.ndarray

    def write(self, scratch: Scratch, total: int, params: dedup.DedupParams) -> tuple[StoredFile, int]:
        """Writes one record batch for each range. Decompresses only row groups with a wanted document.
        Returns the file and its bytes.
        """
        sets = dedup.concat_sets([dedup.shingle_sets(batch, params) for batch in self._batches()])
        shingles = pa.LargeListArray.from_arrays(pa.array(sets.offsets), pa.array(sets.hashes))
        keys = pa.FixedSizeListArray.from_arrays(pa.array(self._keys(params.bands).reshape(-1)), params.bands)
        batch = pa.record_batch({"text": self.texts, "keys": keys, "shingles": shingles})
        path = scratch.path / f"{self.piece.name}.arrow"
        with whole_file(path) as temporary, pa.ipc.new_file(str(temporary), batch.schema) as writer:
            for index in range(total):
                writer.write_batch(batch.filter(pa.array(self.ranges == index)))
        return scratch.written(path), path.stat().st_size

    def _batches(self) -> list[pa.RecordBatch]:
        keep = [kept_ids(path) for path in self.piece.sources[1:]]
        batches, start = [], 0
        with parquet_file(self.piece.sources[0]) as file:
            for index in range(file.num_row_groups):
                group = partial(file.read_row_group, index, use_threads=False)
                ids = group(columns=["id"]).column("id").combine_chunks()
                kept = np.ones(len(ids), bool)
                for kept_by_table in keep:
                    kept &= pc.is_in(ids, value_set=kept_by_table).to_numpy(zero_copy_only=False)
                kept_rows = np.flatnonzero(kept)
                wanted = slice(*np.searchsorted(self.rows, [start, start + len(kept_rows)]))
                taken = kept_rows[self.rows[wanted] - start]
                start += len(kept_rows)
                if len(taken):
                    texts = group(columns=["text"]).combine_chunks()
                    batches += texts.take(pa.array(taken)).combine_chunks().to_batches()
        return batches

    def _keys(self, bands: int) -> np.ndarray:
        """The band keys of the documents, uint64[n, bands]."""
        band_keys = np.empty((len(self.rows), bands), np.uint64)
        by_row = np.empty(self.piece.rows, np.uint64)
        runs = Runs(self.piece.runs)
        for band in range(bands):
            keys, rows = runs[band + 1]
            by_row[rows] = keys
            band_keys[:, band] = by_row[self.rows]
        return band_keys


def fetch(
    engine: Engine, signed: Sequence[Signed], wanted: WantedTexts, scratch: Scratch, params: dedup.DedupParams
) -> tuple[tuple[StoredFile, ...], int]:
    """Writes the wanted texts to files in `scratch`, one file for each part that holds any. Returns the files
    and their bytes.
    """
    order = np.argsort(wanted.rows)
    rows, texts, ranges = wanted.rows[order], wanted.texts[order], wanted.ranges[order]
    tasks = []
    for piece in signed:
        here = piece.among(rows)
        if here.start < here.stop:
            tasks.append(Fetch(piece, rows[here] - piece.start, texts[here], ranges[here]))
    input_bytes = sum(task.piece.source_bytes for task in tasks)
    write = partial(Fetch.write, scratch=scratch, total=wanted.total, params=params)
    written = list(engine.map(write, tasks, input_bytes=input_bytes, what="dedup evidence"))
    return tuple(file for file, _ in written), sum(size for _, size in written)


def read(files: Sequence[StoredFile], index: int) -> tuple[np.ndarray, np.ndarray, dedup.ShingleSets]:
    """The texts of one range of clusters from all files: their numbers, band keys and shingles."""
    batches = [pa.ipc.open_file(pa.memory_map(os.fspath(file))).get_batch(index) for file in files]
    texts = [np.zeros(0, np.int64), *(batch.column("text").to_numpy() for batch in batches)]
    columns = [batch.column("keys") for batch in batches if batch.num_rows]
    keys = [np.asarray(column.flatten()).reshape(len(column), -1) for column in columns]
    shingles = [batch.column("shingles") for batch in batches]
    sets = [dedup.ShingleSets(np.asarray(lists.offsets), np.asarray(lists.values)) for lists in shingles]
    band_keys = np.concatenate(keys) if keys else np.zeros((0, 1), np.uint64)
    return np.concatenate(texts), band_keys, dedup.concat_sets(sets)
