"""The texts of contested clusters: fetched from the parts, then read by ranges of clusters."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import dedup
from pipeline.steps.dedup.shuffle import Slice, Written, write_divided
from pipeline.steps.dedup.signatures import Runs, SignedPart
from pipeline.store.files import Scratch
from pipeline.store.parquet import kept_ids, parquet_file


@dataclass(frozen=True)
class TextFetch:
    """Documents to fetch from a part: global rows, numbers of texts, and the range that needs each."""

    piece: SignedPart
    wanted: Slice

    def write(self, scratch: Scratch, bits: int, params: dedup.DedupParams) -> Written:
        """Writes the texts, divided by up to `bits` bits of their ranges. Decompresses only row groups with a
        wanted document.
        """
        wanted = self.wanted.read().sort_by("row")
        rows = wanted.column("row").to_numpy() - self.piece.start
        sets = dedup.concat_sets([dedup.shingle_sets(batch, params) for batch in self._batches(rows)])
        shingles = pa.LargeListArray.from_arrays(pa.array(sets.offsets), pa.array(sets.hashes))
        band_keys = pa.array(self._keys(rows, params.bands).reshape(-1))
        columns = {
            "key": wanted.column("range").to_numpy() << np.uint64(64 - bits),
            "text": wanted.column("text"),
            "keys": pa.FixedSizeListArray.from_arrays(band_keys, params.bands),
            "shingles": shingles,
        }
        return write_divided(scratch, self.piece.name, pa.record_batch(columns), bits)

    def _batches(self, rows: np.ndarray) -> list[pa.RecordBatch]:
        keep = [kept_ids(path) for path in self.piece.sources[1:]]
        batches, start = [], 0
        with parquet_file(self.piece.sources[0]) as file:
            for index in range(file.num_row_groups):
                read_group = partial(file.read_row_group, index, use_threads=False)
                ids = read_group(columns=["id"]).column("id").combine_chunks()
                kept = np.ones(len(ids), bool)
                for kept_by_table in keep:
                    kept &= pc.is_in(ids, value_set=kept_by_table).to_numpy(zero_copy_only=False)
                kept_rows = np.flatnonzero(kept)
                wanted = slice(*np.searchsorted(rows, [start, start + len(kept_rows)]))
                taken = kept_rows[rows[wanted] - start]
                start += len(kept_rows)
                if len(taken):
                    texts = read_group(columns=["text"]).combine_chunks()
                    batches += texts.take(pa.array(taken)).combine_chunks().to_batches()
        return batches

    def _keys(self, rows: np.ndarray, bands: int) -> np.ndarray:
        """The band keys of the documents, uint64[n, bands]."""
        band_keys = np.empty((len(rows), bands), np.uint64)
        by_row = np.empty(self.piece.rows, np.uint64)
        runs = Runs(self.piece.runs)
        for band in range(bands):
            keys, of_keys = runs[band + 1]
            by_row[of_keys] = keys
            band_keys[:, band] = by_row[rows]
        return band_keys


class ClusterTexts(NamedTuple):
    """Texts of one range of clusters: their numbers, band keys (uint64[n, bands]) and shingles."""

    numbers: np.ndarray  # int64[n]
    keys: np.ndarray
    sets: dedup.ShingleSets

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch]) -> "ClusterTexts":
        """What `TextFetch.write` has written for the range."""
        numbers = [np.zeros(0, np.int64), *(batch.column("text").to_numpy() for batch in batches)]
        columns = [batch.column("keys") for batch in batches if batch.num_rows]
        keys = [np.asarray(column.flatten()).reshape(len(column), -1) for column in columns]
        shingles = [batch.column("shingles") for batch in batches]
        sets = [dedup.ShingleSets(np.asarray(lists.offsets), np.asarray(lists.values)) for lists in shingles]
        band_keys = np.concatenate(keys) if keys else np.zeros((0, 1), np.uint64)
        return cls(np.concatenate(numbers), band_keys, dedup.concat_sets(sets))
