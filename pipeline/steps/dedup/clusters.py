"""Linked documents, by component -> clusters, by ranges of their keys.

A cluster is contested when its documents have several texts, which have to be compared. One whose documents
are exact copies is decided here, and the decisions go to the parts of its documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import dedup
from pipeline.steps.dedup.candidates import KEYED
from pipeline.steps.dedup.shuffle import BITS, TOGETHER, Slice, Written, divide, remove, write_divided
from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch

RANGE_CHARACTERS = 64_000_000  # of texts to verify together: about 0.3 GB of shingles, keys and tables


@dataclass(frozen=True)
class Layout:
    """Where documents belong: the first document of each part (int64), the corpora by priority, and a
    directory for documents by part.
    """

    starts: np.ndarray
    corpora: tuple[str, ...]
    scratch: Scratch

    @property
    def bits(self) -> int:
        """How many bits number the parts."""
        return (len(self.starts) - 1).bit_length()

    def parts(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of the parts of documents, by global row."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def write(self, name: str, rows: pa.RecordBatch) -> Written:
        """Divides documents by part. `rows` has their global rows as `row`."""
        keys = self.parts(rows.column("row").to_numpy()).astype(np.uint64) << np.uint64(64 - self.bits)
        return write_divided(self.scratch, name, rows.add_column(0, "key", pa.array(keys)), self.bits)

    def decided(self, clusters: dedup.Clusters, verified: dedup.Verified) -> pa.RecordBatch:
        """The decisions on all documents of the clusters, with the corpus of the survivor as `home`."""
        decided = dedup.decide(clusters, verified)
        homes = pa.array(self.corpora, pa.string()).take(decided.column("priority"))
        return decided.drop_columns("priority").append_column("home", homes)


class ContestedClusters(NamedTuple):
    """The contested clusters of a range, ascending by key. Of each there is the key as bytes, the first text
    and the number of texts.
    """

    clusters: dedup.Clusters
    keys: bytes  # 16 for each cluster
    starts: np.ndarray  # int64[clusters]
    sizes: np.ndarray  # int64[clusters]

    @property
    def key_column(self) -> pa.Array:
        return pa.Array.from_buffers(pa.binary(16), len(self.starts), [None, pa.py_buffer(self.keys)])


@dataclass(frozen=True)
class ClusterRange:
    """The documents of the clusters of one range of keys. One part of dedup_evidence holds their results."""

    name: str
    rows: Slice

    def read(self) -> ContestedClusters:
        clusters = dedup.clustered(_members(self.rows))
        by_key = np.lexsort((clusters.keys[:, 1], clusters.keys[:, 0]))  # int64[clusters]
        starts, sizes = clusters.starts[:-1], np.diff(clusters.starts)  # int64[clusters]
        return ContestedClusters(clusters, clusters.keys[by_key].tobytes(), starts[by_key], sizes[by_key])

    def keys(self) -> bytes:
        return self.read().keys


class FoundClusters(NamedTuple):
    """The contested clusters by ranges of their keys, the bytes of their documents, and the decisions on the
    documents of other clusters.
    """

    ranges: list[ClusterRange]
    bytes: int
    decided: list[Written]

    @property
    def together(self) -> int:
        """How many ranges of documents a task holds."""
        return max(1, TOGETHER * len(self.ranges) // max(self.bytes, 1))


def find_clusters(engine: Engine, layout: Layout, linked: Sequence[Slice], size: int) -> FoundClusters:
    """Finds the clusters of linked documents of `size` bytes. The contested ones are divided by key into a
    power of two of ranges, so a cluster stays in the range of the same name until the corpora double.
    """
    filled = [rows for rows in linked if rows.files]
    separate = partial(_separate, layout=layout)
    separated = list(engine.map(separate, filled, input_bytes=size, what="dedup candidates"))
    remove(linked)
    bits = (sum(each.characters for each in separated) // RANGE_CHARACTERS).bit_length()
    contested = [each.contested for each in separated]
    slices, contested_size = divide(
        engine, layout.scratch, contested, bits, what="dedup candidates", begun=BITS
    )
    ranges = [ClusterRange(f"{index:05d}-of-{1 << bits:05d}", rows) for index, rows in enumerate(slices)]
    return FoundClusters(ranges, contested_size, [each.decided for each in separated])


class _Separated(NamedTuple):
    """What became of the linked documents of a slice: those of contested clusters, how many characters their
    texts have, and the decisions on the documents of other clusters.
    """

    contested: Written
    characters: int
    decided: Written


def _separate(rows: Slice, layout: Layout) -> _Separated:
    clusters = dedup.clustered(_members(rows))
    sizes = np.diff(clusters.starts)  # int64[clusters], in texts
    cluster_of_text = np.repeat(np.arange(len(sizes)), sizes)  # int64[texts]
    cluster_of_member = cluster_of_text[clusters.texts]  # int64[members]
    name_of_cluster = clusters.rows[clusters.starts[:-1]]  # int64[clusters], the row of its first text
    survivors = pa.array(clusters.best[clusters.contested])  # of the contested texts
    characters = pc.sum(clusters.members.column("length").take(survivors)).as_py() or 0
    # The root names a component, which may have been cut into several clusters: these get names of their own.
    members = clusters.members.set_column(
        dedup.MEMBER_SCHEMA.get_field_index("root"), "root", pa.array(name_of_cluster[cluster_of_member])
    ).add_column(0, "key", pa.array(clusters.keys[cluster_of_member, 0]))
    is_contested = pa.array(sizes[cluster_of_member] > 1)  # bool[members]
    del clusters, cluster_of_text, cluster_of_member  # some 300 bytes for each document
    contested = write_divided(layout.scratch, f"clusters-{rows.name}", members.filter(is_contested), BITS)
    others = members.filter(pc.invert(is_contested)).drop_columns("key")
    del members
    alone = dedup.clustered(others)
    themselves = dedup.Verified(np.arange(len(alone.rows)), np.full(len(alone.rows), np.nan, np.float32))
    decided = layout.write(f"decided-{rows.name}", layout.decided(alone, themselves))
    return _Separated(contested, characters, decided)


def _members(rows: Slice) -> pa.RecordBatch:
    nothing = pa.RecordBatch.from_pylist([], KEYED)
    return pa.concat_batches([nothing, *rows.batches()]).drop_columns("key")
