"""Candidate clusters -> dedup_evidence: which of their texts are similar, verified on the text itself.

The result of a cluster is stored under its content, so it is reused whatever changed around the cluster. A
change to any of its texts verifies the entire cluster again. The texts are fetched part by part, into
files that are divided by ranges of clusters. A task that needs the clusters of a range sorts them again.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

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
from pipeline.store.engines.local import Engine, Result, Task
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
        digest, sha256 = hashlib.sha256(), []
        for range_keys in self._map(ClusterRange.keys, self.clusters.ranges, what="dedup evidence"):
            digest.update(range_keys)
            sha256.append(hashlib.sha256(range_keys).hexdigest())
        inputs = {"clusters": digest.hexdigest()}
        with store.making(Work(keys.DEDUP_EVIDENCE, dedup.VERSION, self.params, inputs)) as version:
            if isinstance(version, Draft):
                version = self._make(store, version, sha256)
        store.check(version)
        results = list(zip(self.clusters.ranges, version.files(TABLE), strict=True))
        decide = partial(_write_decided, layout=self.layout)
        return list(self._map(decide, grouped(results, self.clusters.together), what="dedup decisions"))

    def _map(self, function: Callable[[Task], Result], tasks: Sequence[Task], what: str) -> Iterator[Result]:
        """Maps over tasks that together read all contested documents."""
        return self.engine.map(function, tasks, input_bytes=self.clusters.bytes, what=what)

    def _make(self, store: Store, draft: Draft, sha256: Sequence[str]) -> Version:
        """Verifies what no earlier version has. `sha256`: of the keys of each range."""
        todo, parts = _unverified(draft, latest(store, self.params), self.clusters.ranges, sha256)
        texts, text_bytes, anew = self._texts_of(todo)
        tasks = [replace(task, fetched=rows) for task, rows in zip(todo, texts, strict=False)]
        verify = partial(_Verification.part, params=self.params)
        write = partial(put_parts, function=verify, directory=draft.path, files=store.files)
        for part in self.engine.map(write, tasks, input_bytes=text_bytes, what="dedup verification"):
            draft.keep(part)
            parts.append(part)
        remove(texts)
        parts.sort(key=lambda part: part.name)
        return draft.publish(parts, total_counts(parts) | {"clusters_verified_anew": anew})

    def _texts_of(self, todo: Sequence["_Verification"]) -> tuple[list[Slice], int, int]:
        """The texts to verify by range, their bytes, and the number of clusters without a reusable result."""
        engine, layout = self.engine, self.layout
        wanted, wanted_parts, anew = [], set(), 0
        write_wanted = partial(_write_wanted, layout=layout)
        groups = grouped(todo, self.clusters.together)
        for rows, parts, count in self._map(write_wanted, groups, what="dedup evidence"):
            wanted.append(rows)
            wanted_parts.update(parts)
            anew += count
        by_part, _ = divide(engine, layout.scratch, wanted, layout.bits, what="dedup evidence")
        fetches = [TextFetch(self.signed[part], by_part[part]) for part in sorted(wanted_parts)]
        bits = (len(todo) - 1).bit_length()
        fetch = partial(TextFetch.write, scratch=layout.scratch, bits=bits, params=self.params)
        input_bytes = sum(task.piece.source_bytes for task in fetches)
        texts = list(engine.map(fetch, fetches, input_bytes=input_bytes, what="dedup evidence"))
        remove(by_part)
        return *divide(engine, layout.scratch, texts, bits, what="dedup evidence"), anew


def _write_decided(ranges: Sequence[tuple[ClusterRange, StoredFile]], layout: Layout) -> Written:
    decided = [_decided(of_range.read(), read_table(results), layout) for of_range, results in ranges]
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
    for of_range, of_keys in zip(ranges, sha256, strict=True):
        fingerprint, name = draft.work.part_fingerprint([of_keys]), of_range.name
        part = draft.finished(name, fingerprint)
        if part is None:
            todo.append(_Verification(of_range, fingerprint, _same_keys(previous, name), len(todo)))
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
        texts, of_bands, sets = ClusterTexts.of(self.fetched.batches())
        order = np.argsort(texts)  # texts are numbered from the best survivor to the worst
        starts, sizes = contested.starts[new], contested.sizes[new]
        place = order[np.searchsorted(texts, _consecutive(starts, sizes), sorter=order)]
        # Pieces of one cluster have keys in common.
        apart = np.empty((len(texts), 1), np.uint64)
        apart[place, 0] = np.repeat(np.frombuffer(contested.keys, np.uint64)[::2][new], sizes)
        verified = dedup.verify(of_bands ^ apart, sets, order, params)
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


@dataclass(frozen=True)
class TextFetch:
    """Documents to fetch from a part: global rows, numbers of texts, and the range that needs each."""

    piece: SignedPart
    wanted: Slice

    def write(self, scratch: Scratch, bits: int, params: dedup.DedupParams) -> Written:
        """Writes the texts by up to `bits` bits of their ranges. Reads only row groups with a wanted one."""
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
