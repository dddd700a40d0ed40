"""Candidate clusters -> dedup_evidence: which of their texts are similar, verified on the text itself.

The result of a cluster is stored under its content, so it is reused whatever changed around the cluster. A
change to any of its texts verifies the entire cluster again. The texts are fetched part by part, into
files that are divided by ranges of clusters.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import dedup
from pipeline.steps.dedup.shuffle import BITS, NOTHING, Slice, divide, write_divided
from pipeline.steps.dedup.signatures import Runs, Signed
from pipeline.store import keys
from pipeline.store.damage import Look
from pipeline.store.draft import Draft
from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile
from pipeline.store.manifest import Part, Version, total_counts
from pipeline.store.parquet import PartWriter, kept_ids, parquet_file, read_table
from pipeline.store.parts import put_parts
from pipeline.store.store import Store
from pipeline.store.work import Work

TABLE = "clusters"
RANGE_CHARACTERS = 64_000_000  # of texts to verify together: about 0.3 GB of shingles, keys and tables
SCHEMA = pa.schema(
    [("key", pa.binary(16)), ("keeper", pa.list_(pa.int32())), ("jaccard", pa.list_(pa.float32()))]
)


@dataclass(frozen=True)
class ClusterRange:
    """The clusters of one range of keys, ascending by key: their keys as bytes, the first text of each and
    its number of texts. One part of dedup_evidence holds their results.
    """

    name: str
    keys: bytes
    starts: np.ndarray
    sizes: np.ndarray

    @property
    def key_column(self) -> pa.Array:
        return pa.Array.from_buffers(pa.binary(16), len(self.starts), [None, pa.py_buffer(self.keys)])


def verify(
    store: Store,
    engine: Engine,
    signed: Sequence[Signed],
    clusters: dedup.Clusters,
    params: dedup.DedupParams,
) -> dedup.Verified:
    """The result of `dedup.verify` for each text of the clusters; a text alone in a cluster keeps itself."""
    ranges = _cluster_ranges(clusters)
    inputs = {"clusters": hashlib.sha256(b"".join(some.keys for some in ranges)).hexdigest()}
    with store.making(Work(keys.DEDUP_EVIDENCE, dedup.VERSION, params, inputs)) as version:
        if isinstance(version, Draft):
            version = _publish_results(version, store, engine, signed, clusters, ranges, params)
    store.check(version)
    results = pa.concat_tables([read_table(path) for path in version.files(TABLE)])
    starts = np.concatenate([some.starts for some in ranges])
    sizes = np.concatenate([some.sizes for some in ranges])
    keeper = np.repeat(np.cumsum(sizes) - sizes, sizes) + _flattened(results.column("keeper"))
    verified = dedup.Verified(keeper, _flattened(results.column("jaccard")))
    return clusters.verified(_consecutive(starts, sizes), verified)


def _flattened(column: pa.ChunkedArray) -> np.ndarray:
    empty = np.zeros(0, column.type.value_type.to_pandas_dtype())
    return np.concatenate([empty, *(chunk.flatten().to_numpy() for chunk in column.chunks)])


def _cluster_ranges(clusters: dedup.Clusters) -> list[ClusterRange]:
    """The clusters to verify, divided by key into a power of two of ranges: a cluster stays in the range of
    the same name until the corpora double.
    """
    sizes = np.diff(clusters.starts)
    chosen = np.flatnonzero(sizes > 1)
    chosen = chosen[np.lexsort((clusters.keys[chosen, 1], clusters.keys[chosen, 0]))]
    keys = clusters.keys[chosen]
    lengths = clusters.members.column("length").take(clusters.best[clusters.contested])
    count = 1 << ((pc.sum(lengths).as_py() or 0) // RANGE_CHARACTERS).bit_length()
    bounds = [np.uint64((index << 64) // count) for index in range(count)]
    edges = [*np.searchsorted(keys[:, 0], bounds).tolist(), len(keys)]
    ranges = []
    for index in range(count):
        here = slice(edges[index], edges[index + 1])
        name = f"{index:05d}-of-{count:05d}"
        starts, some_sizes = clusters.starts[chosen[here]], sizes[chosen[here]]
        ranges.append(ClusterRange(name, keys[here].tobytes(), starts, some_sizes))
    return ranges


def _publish_results(
    draft: Draft,
    store: Store,
    engine: Engine,
    signed: Sequence[Signed],
    clusters: dedup.Clusters,
    ranges: Sequence[ClusterRange],
    params: dedup.DedupParams,
) -> Version:
    """Verifies the clusters without a reusable result and publishes the results of all."""
    reusable = latest(store, params)
    previous, parts = reusable.files(TABLE) if reusable else [], []
    todo: list[_Verification] = []
    for some in ranges:
        fingerprint = draft.work.part_fingerprint([hashlib.sha256(some.keys).hexdigest()])
        part = draft.finished(some.name, fingerprint)
        if part is None:
            todo.append(_Verification(some, fingerprint, _same_keys(previous, some.name)))
        else:
            parts.append(part)
    # Only the texts of new clusters are fetched. This process reads the keys of earlier results, workers the
    # rest.
    new = [task.new_clusters() for task in todo]
    texts = [
        _consecutive(task.clusters.starts[mask], task.clusters.sizes[mask])
        for task, mask in zip(todo, new, strict=True)
    ]
    index = np.repeat(np.arange(len(todo)), [len(numbers) for numbers in texts])
    numbers = np.concatenate([np.zeros(0, np.int64), *texts])
    with draft.scratch(engine.apart) as scratch:
        bits = (len(todo) - 1).bit_length()
        fetching = partial(_Fetch.write, scratch=scratch, bits=bits, params=params)
        files, input_bytes = _fetch(engine, signed, clusters.rows[numbers], numbers, index, fetching)
        fetched = divide(engine, scratch, files, bits, input_bytes, "dedup evidence")
        tasks = [replace(task, fetched=rows) for task, rows in zip(todo, fetched, strict=False)]
        verified = partial(_Verification.part, params=params)
        write = partial(put_parts, function=verified, directory=draft.path, files=store.files)
        for part in engine.map(write, tasks, input_bytes=input_bytes, what="dedup verification"):
            draft.keep(part)
            parts.append(part)
    verified_anew = sum(int(mask.sum()) for mask in new)
    parts.sort(key=lambda part: part.name)
    return draft.publish(parts, total_counts(parts) | {"clusters_verified_anew": verified_anew})


def keep(store: Store, params: dedup.DedupParams) -> None:
    """Marks the results as used, so that gc keeps them."""
    version = latest(store, params)
    if version is not None:
        store.use(version)


def latest(store: Store, params: dedup.DedupParams) -> Version | None:
    """The results that the next run with these settings reuses."""
    version = store.latest(keys.DEDUP_EVIDENCE, dedup.VERSION, params)
    return version if version and not store.damage(version, Look.UNREAD) else None


def _same_keys(previous: Sequence[StoredFile], name: str) -> tuple[StoredFile, ...]:
    """The files whose range of keys overlaps the range `name`. Each range has the same size."""
    index, count = map(int, name.split("-of-"))
    first, last = index * len(previous) // count, -(-(index + 1) * len(previous) // count)
    return tuple(previous[first:last])


def _consecutive(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, ... (sizes[0] numbers), then as many from each other start."""
    return np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())


@dataclass(frozen=True)
class _Fetch:
    """Documents to fetch from one part: their local rows, ascending, the numbers of their texts, and which
    range of clusters needs each.
    """

    piece: Signed
    rows: np.ndarray
    texts: np.ndarray
    ranges: np.ndarray

    def write(self, scratch: Scratch, bits: int, params: dedup.DedupParams) -> tuple[StoredFile, int]:
        """Writes the texts, divided by up to `bits` bits of their ranges. Decompresses only row groups with a
        wanted document. Returns the file and its bytes.
        """
        sets = dedup.concat_sets([dedup.shingle_sets(batch, params) for batch in self._batches()])
        shingles = pa.LargeListArray.from_arrays(pa.array(sets.offsets), pa.array(sets.hashes))
        keys = pa.FixedSizeListArray.from_arrays(pa.array(self._keys(params.bands).reshape(-1)), params.bands)
        ranges = self.ranges.astype(np.uint64) << np.uint64(64 - bits)
        rows = pa.record_batch({"key": ranges, "text": self.texts, "keys": keys, "shingles": shingles})
        return write_divided(scratch, self.piece.name, rows, 0, min(BITS, bits)), rows.nbytes

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


def _fetch(
    engine: Engine,
    signed: Sequence[Signed],
    rows: np.ndarray,
    texts: np.ndarray,
    ranges: np.ndarray,
    write: Callable[[_Fetch], tuple[StoredFile, int]],
) -> tuple[tuple[StoredFile, ...], int]:
    """Writes the texts of documents, by global row, to files, one for each part that holds any. Returns the
    files and their bytes.
    """
    order = np.argsort(rows)
    rows, texts, ranges = rows[order], texts[order], ranges[order]
    tasks = []
    for piece in signed:
        here = piece.among(rows)
        if here.start < here.stop:
            tasks.append(_Fetch(piece, rows[here] - piece.start, texts[here], ranges[here]))
    input_bytes = sum(task.piece.source_bytes for task in tasks)
    written = list(engine.map(write, tasks, input_bytes=input_bytes, what="dedup evidence"))
    return tuple(file for file, _ in written), sum(size for _, size in written)


def _texts(batches: Sequence[pa.RecordBatch]) -> tuple[np.ndarray, np.ndarray, dedup.ShingleSets]:
    """Texts of one range of clusters: their numbers, band keys and shingles."""
    texts = [np.zeros(0, np.int64), *(batch.column("text").to_numpy() for batch in batches)]
    columns = [batch.column("keys") for batch in batches if batch.num_rows]
    keys = [np.asarray(column.flatten()).reshape(len(column), -1) for column in columns]
    shingles = [batch.column("shingles") for batch in batches]
    sets = [dedup.ShingleSets(np.asarray(lists.offsets), np.asarray(lists.values)) for lists in shingles]
    band_keys = np.concatenate(keys) if keys else np.zeros((0, 1), np.uint64)
    return np.concatenate(texts), band_keys, dedup.concat_sets(sets)


@dataclass(frozen=True)
class _Verification:
    """One range to verify. Results come from the `previous` files where these hold a cluster, else from the
    `fetched` texts.
    """

    clusters: ClusterRange
    fingerprint: str
    previous: tuple[StoredFile, ...]
    fetched: Slice = NOTHING

    def new_clusters(self) -> np.ndarray:
        """bool [clusters]: whether the previous results lack a cluster."""
        tables = [read_table(path, columns=["key"]) for path in self.previous]
        return self._lacking(pa.concat_tables([SCHEMA.empty_table().select(["key"]), *tables]))

    def _lacking(self, results: pa.Table) -> np.ndarray:
        known = pc.is_in(self.clusters.key_column, value_set=results.column("key"))
        return ~known.to_numpy(zero_copy_only=False)

    def part(self, directory: Path, params: dedup.DedupParams) -> Part:
        """Writes the results of all clusters of the range."""
        key_column = self.clusters.key_column
        reused = pa.concat_tables([SCHEMA.empty_table(), *(read_table(path) for path in self.previous)])
        reused = reused.filter(pc.is_in(reused.column("key"), value_set=key_column))
        verified = self._verified(self._lacking(reused), params)
        results = pa.concat_tables([reused, verified]).combine_chunks()
        results = results.take(pc.index_in(key_column, value_set=results.column("key")))
        with PartWriter(directory, self.clusters.name, {TABLE: SCHEMA}) as writer:
            for batch in results.combine_chunks().to_batches():
                writer.write(TABLE, batch)
        counts = {"clusters": len(key_column), "texts": int(self.clusters.sizes.sum())}
        return Part(self.clusters.name, self.fingerprint, writer.files, counts)

    def _verified(self, new: np.ndarray, params: dedup.DedupParams) -> pa.Table:
        texts, keys, sets = _texts(self.fetched.batches())
        order = np.argsort(texts)  # texts are numbered from the best survivor to the worst
        starts, sizes = self.clusters.starts[new], self.clusters.sizes[new]
        place = order[np.searchsorted(texts, _consecutive(starts, sizes), sorter=order)]
        # Pieces of one cluster have keys in common.
        apart = np.empty((len(texts), 1), np.uint64)
        apart[place, 0] = np.repeat(np.frombuffer(self.clusters.keys, np.uint64)[::2][new], sizes)
        verified = dedup.verify(keys ^ apart, sets, order, params)
        keeper = (texts[verified.keeper[place]] - np.repeat(starts, sizes)).astype(np.int32)
        offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
        columns = (keeper, verified.jaccard[place])
        lists = [pa.ListArray.from_arrays(offsets, pa.array(values)) for values in columns]
        return pa.table([self.clusters.key_column.filter(pa.array(new)), *lists], schema=SCHEMA)
