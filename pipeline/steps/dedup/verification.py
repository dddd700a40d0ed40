"""Candidate clusters -> dedup_evidence: which of their texts are similar, verified on the text itself.

The result of a cluster is stored under its content, so it is reused whatever changed around the cluster. A
change to any of its texts verifies the entire cluster again. The texts are fetched part by part, into
files that are divided by ranges of clusters. A task that needs the clusters of a range sorts them again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import dedup
from pipeline.steps.dedup.clusters import ClusterRange, ContestedClusters, FoundClusters, Layout
from pipeline.steps.dedup.shuffle import NOTHING, Slice, Written, divide, grouped, remove, write_divided
from pipeline.steps.dedup.signatures import Runs, SignedPart
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
SCHEMA = pa.schema(
    [("key", pa.binary(16)), ("keeper", pa.list_(pa.int32())), ("jaccard", pa.list_(pa.float32()))]
)


@dataclass(frozen=True)
class Verifier:
    """Verifies the clusters of the signed parts."""

    engine: Engine
    signed: Sequence[SignedPart]
    layout: Layout
    clusters: FoundClusters
    params: dedup.DedupParams

    def verify(self, store: Store) -> list[Written]:
        """The decisions on the documents of the clusters, from the result of `dedup.verify` for each text."""
        engine, params, clusters = self.engine, self.params, self.clusters
        ranges, size = clusters.ranges, clusters.bytes
        digest, of_ranges = hashlib.sha256(), []
        for of_range in engine.map(ClusterRange.keys, ranges, input_bytes=size, what="dedup evidence"):
            digest.update(of_range)
            of_ranges.append(hashlib.sha256(of_range).hexdigest())
        inputs = {"clusters": digest.hexdigest()}
        with store.making(Work(keys.DEDUP_EVIDENCE, dedup.VERSION, params, inputs)) as version:
            if isinstance(version, Draft):
                todo, parts = _unverified(version, latest(store, params), ranges, of_ranges)
                texts, text_bytes, anew = self._texts_of(todo)
                tasks = [replace(task, fetched=rows) for task, rows in zip(todo, texts, strict=False)]
                verified = partial(_Verification.part, params=params)
                write = partial(put_parts, function=verified, directory=version.path, files=store.files)
                for part in engine.map(write, tasks, input_bytes=text_bytes, what="dedup verification"):
                    version.keep(part)
                    parts.append(part)
                remove(texts)
                parts.sort(key=lambda part: part.name)
                version = version.publish(parts, total_counts(parts) | {"clusters_verified_anew": anew})
        store.check(version)
        results = grouped(list(zip(ranges, version.files(TABLE), strict=True)), clusters.together)
        decide = partial(_write_decided, layout=self.layout)
        return list(engine.map(decide, results, input_bytes=size, what="dedup decisions"))

    def _texts_of(self, todo: Sequence["_Verification"]) -> tuple[list[Slice], int, int]:
        """The texts to verify by range, their bytes, and the number of clusters without a reusable result."""
        engine, layout, clusters = self.engine, self.layout, self.clusters
        want, groups = partial(_write_wanted, layout=layout), grouped(todo, clusters.together)
        wanted, wanting, anew = [], set(), 0
        for rows, found, count in engine.map(want, groups, input_bytes=clusters.bytes, what="dedup evidence"):
            wanted.append(rows)
            wanting.update(found)
            anew += count
        by_part, _ = divide(engine, layout.scratch, wanted, layout.bits, what="dedup evidence")
        fetches = [_Fetch(self.signed[part], by_part[part]) for part in sorted(wanting)]
        bits = (len(todo) - 1).bit_length()
        fetch = partial(_Fetch.write, scratch=layout.scratch, bits=bits, params=self.params)
        input_bytes = sum(task.piece.source_bytes for task in fetches)
        texts = list(engine.map(fetch, fetches, input_bytes=input_bytes, what="dedup evidence"))
        remove(by_part)
        return *divide(engine, layout.scratch, texts, bits, what="dedup evidence"), anew


def _write_decided(ranges: Sequence[tuple[ClusterRange, StoredFile]], layout: Layout) -> Written:
    decided = [_decided(some.read(), read_table(results), layout) for some, results in ranges]
    return layout.write(f"decided-{ranges[0][0].name}", pa.concat_batches(decided))


def _decided(contested: ContestedClusters, results: pa.Table, layout: Layout) -> pa.RecordBatch:
    first = np.repeat(np.cumsum(contested.sizes) - contested.sizes, contested.sizes)
    columns = (results.column(name).combine_chunks() for name in ("keeper", "jaccard"))
    keeper, similarity = (column.flatten().to_numpy() for column in columns)
    texts = _consecutive(contested.starts, contested.sizes)
    verified = contested.clusters.verified(texts, dedup.Verified(first + keeper, similarity))
    return layout.decided(contested.clusters, verified)


def _unverified(
    draft: Draft, reusable: Version | None, ranges: Sequence[ClusterRange], sha256: Sequence[str]
) -> tuple[list["_Verification"], list[Part]]:
    """What is to verify, and the parts of the other ranges. `sha256`: of the keys of each range."""
    previous, parts = reusable.files(TABLE) if reusable else [], []
    todo: list[_Verification] = []
    for some, of_keys in zip(ranges, sha256, strict=True):
        fingerprint = draft.work.part_fingerprint([of_keys])
        part = draft.finished(some.name, fingerprint)
        if part is None:
            todo.append(_Verification(some, fingerprint, _same_keys(previous, some.name), len(todo)))
        else:
            parts.append(part)
    return todo, parts


def latest(store: Store, params: dedup.DedupParams) -> Version | None:
    """The results that the next run with these settings reuses."""
    version = store.made_with(keys.DEDUP_EVIDENCE, dedup.VERSION, params)
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
                group = partial(file.read_row_group, index, use_threads=False)
                ids = group(columns=["id"]).column("id").combine_chunks()
                kept = np.ones(len(ids), bool)
                for kept_by_table in keep:
                    kept &= pc.is_in(ids, value_set=kept_by_table).to_numpy(zero_copy_only=False)
                kept_rows = np.flatnonzero(kept)
                wanted = slice(*np.searchsorted(rows, [start, start + len(kept_rows)]))
                taken = kept_rows[rows[wanted] - start]
                start += len(kept_rows)
                if len(taken):
                    texts = group(columns=["text"]).combine_chunks()
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
    """Range `number`, with results from `previous` files where they hold a cluster, else from `fetched`."""

    range: ClusterRange
    fingerprint: str
    previous: tuple[StoredFile, ...]
    number: int
    fetched: Slice = NOTHING

    def wanted(self) -> tuple[pa.RecordBatch, int]:
        """The texts of the clusters that the previous results lack, and how many clusters."""
        contested = self.range.read()
        tables = [read_table(path, columns=["key"]) for path in self.previous]
        new = _lacking(contested, pa.concat_tables([SCHEMA.empty_table().select(["key"]), *tables]))
        texts = _consecutive(contested.starts[new], contested.sizes[new])
        rows = contested.clusters.rows[texts]
        numbers = np.full(len(rows), self.number, np.uint64)
        return pa.record_batch({"row": rows, "text": texts, "range": numbers}), int(new.sum())

    def part(self, directory: Path, params: dedup.DedupParams) -> Part:
        """Writes the results of all clusters of the range."""
        contested = self.range.read()
        reused = pa.concat_tables([SCHEMA.empty_table(), *(read_table(path) for path in self.previous)])
        reused = reused.filter(pc.is_in(reused.column("key"), value_set=contested.key_column))
        verified = self._verified(contested, _lacking(contested, reused), params)
        results = pa.concat_tables([reused, verified]).combine_chunks()
        results = results.take(pc.index_in(contested.key_column, value_set=results.column("key")))
        with PartWriter(directory, self.range.name, {TABLE: SCHEMA}) as writer:
            for batch in results.combine_chunks().to_batches():
                writer.write(TABLE, batch)
        counts = {"clusters": len(contested.sizes), "texts": int(contested.sizes.sum())}
        return Part(self.range.name, self.fingerprint, writer.files, counts)

    def _verified(self, contested: ContestedClusters, new: np.ndarray, params: dedup.DedupParams) -> pa.Table:
        texts, keys, sets = _texts(self.fetched.batches())
        order = np.argsort(texts)  # texts are numbered from the best survivor to the worst
        starts, sizes = contested.starts[new], contested.sizes[new]
        place = order[np.searchsorted(texts, _consecutive(starts, sizes), sorter=order)]
        # Pieces of one cluster have keys in common.
        apart = np.empty((len(texts), 1), np.uint64)
        apart[place, 0] = np.repeat(np.frombuffer(contested.keys, np.uint64)[::2][new], sizes)
        verified = dedup.verify(keys ^ apart, sets, order, params)
        keeper = (texts[verified.keeper[place]] - np.repeat(starts, sizes)).astype(np.int32)
        offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
        columns = (keeper, verified.jaccard[place])
        lists = [pa.ListArray.from_arrays(offsets, pa.array(values)) for values in columns]
        return pa.table([contested.key_column.filter(pa.array(new)), *lists], schema=SCHEMA)


def _write_wanted(tasks: Sequence[_Verification], layout: Layout) -> tuple[Written, list[int], int]:
    """Returns the file, the parts that have any of the texts, and the number of clusters."""
    wanted, counts = zip(*(task.wanted() for task in tasks), strict=True)
    texts = pa.concat_batches(wanted)
    parts = np.unique(layout.parts(texts.column("row").to_numpy())).tolist()
    return layout.write(f"wanted-{tasks[0].number}", texts), parts, sum(counts)


def _lacking(contested: ContestedClusters, results: pa.Table) -> np.ndarray:
    """bool [clusters]: whether the results lack a cluster."""
    known = pc.is_in(contested.key_column, value_set=results.column("key"))
    return ~known.to_numpy(zero_copy_only=False)
