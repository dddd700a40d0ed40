"""Candidate clusters -> dedup_evidence: which of their texts are similar, verified on the text itself.

A cluster's results are stored by its content, so one that was verified before is not verified again, whatever
changed around it. A cluster that a change touches is verified anew as a whole.
"""

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.stages import dedup
from pipeline.steps.dedup.candidate_texts import Wanted, fetch, read
from pipeline.steps.dedup.signatures import Signed
from pipeline.store import keys
from pipeline.store.engine import Engine
from pipeline.store.fingerprint import canonical_json
from pipeline.store.parquet import PartWriter
from pipeline.store.versions import Draft, Part, Store, Version, Work, total_counts

TABLE = "clusters"
SHARD_CHARACTERS = 64_000_000  # of texts to verify together: about 0.3 GB of shingles, keys and tables
SCHEMA = pa.schema(
    [("key", pa.binary(16)), ("keeper", pa.list_(pa.int32())), ("jaccard", pa.list_(pa.float32()))]
)


@dataclass(frozen=True)
class Shard:
    """Clusters whose keys begin alike, ascending by key: their keys as bytes, the first text of each and how
    many it has.
    """

    name: str
    keys: bytes
    starts: np.ndarray
    sizes: np.ndarray

    @property
    def column(self) -> pa.Array:
        return pa.Array.from_buffers(pa.binary(16), len(self.starts), [None, pa.py_buffer(self.keys)])


def verify(
    store: Store,
    engine: Engine,
    signed: Sequence[Signed],
    clusters: dedup.Clusters,
    params: dedup.DedupParams,
) -> dedup.Verified:
    """What `dedup.verify` says of each text of the clusters; a text without company keeps itself."""
    shards = _shards(clusters)
    work = Work(
        keys.DEDUP_EVIDENCE,
        dedup.VERSION,
        params,
        {"clusters": hashlib.sha256(b"".join(shard.keys for shard in shards)).hexdigest()},
    )
    with store.making(work) as draft:
        version = (
            draft
            if isinstance(draft, Version)
            else _made(draft, store, engine, signed, clusters, shards, params)
        )
    found = pa.concat_tables([pq.read_table(path) for path in version.files(TABLE)])
    starts = np.concatenate([shard.starts for shard in shards])
    sizes = np.concatenate([shard.sizes for shard in shards])
    ends = np.cumsum(sizes)
    keeper = np.repeat(ends - sizes, sizes) + _flat(found.column("keeper"))
    return clusters.verified(_ranges(starts, sizes), dedup.Verified(keeper, _flat(found.column("jaccard"))))


def _flat(column: pa.ChunkedArray) -> np.ndarray:
    return np.concatenate(
        [
            np.zeros(0, column.type.value_type.to_pandas_dtype()),
            *(chunk.flatten().to_numpy() for chunk in column.chunks),
        ]
    )


def _shards(clusters: dedup.Clusters) -> list[Shard]:
    """The clusters to verify, cut by key into a power of two of shards: like clusters fall in like shards
    until the corpora double.
    """
    sizes = np.diff(clusters.starts)
    chosen = np.flatnonzero(sizes > 1)
    chosen = chosen[np.lexsort((clusters.keys[chosen, 1], clusters.keys[chosen, 0]))]
    keys = clusters.keys[chosen]
    characters = (
        pc.sum(clusters.members.column("length").take(clusters.best[clusters.contested])).as_py() or 0
    )
    count = 1 << (characters // SHARD_CHARACTERS).bit_length()
    edges = [
        int(np.searchsorted(keys[:, 0], np.uint64((index << 64) // count))) for index in range(count)
    ] + [len(keys)]
    shards = []
    for index in range(count):
        here = slice(edges[index], edges[index + 1])
        name = f"{index:05d}-of-{count:05d}"
        shards.append(Shard(name, keys[here].tobytes(), clusters.starts[chosen[here]], sizes[chosen[here]]))
    return shards


def _made(
    draft: Draft,
    store: Store,
    engine: Engine,
    signed: Sequence[Signed],
    clusters: dedup.Clusters,
    shards: Sequence[Shard],
    params: dedup.DedupParams,
) -> Version:
    earlier, parts = _earlier(store, draft.work), []
    todo: list[_Verification] = []
    for shard in shards:
        made_from = draft.work.part_fingerprint([hashlib.sha256(shard.keys).hexdigest()])
        part = draft.finished(shard.name, made_from)
        if part is None:
            todo.append(_Verification(len(todo), shard, made_from, _overlapping(earlier, shard.name)))
        else:
            parts.append(part)
    # What was verified before needs no text. A worker reads the results, here are only keys.
    unknown = [(task, ~task.known()) for task in todo]
    texts = [_ranges(task.shard.starts[new], task.shard.sizes[new]) for task, new in unknown]
    number = np.repeat(np.arange(len(todo)), [len(found) for found in texts])
    chosen = np.concatenate([np.zeros(0, np.int64), *texts])
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=draft.path) as scratch:
        fetched = fetch(
            engine, signed, Wanted(clusters.rows[chosen], chosen, number, len(todo)), Path(scratch), params
        )
        verification = partial(
            _Verification.part, directory=draft.path, fetched=tuple(fetched), params=params
        )
        for part in engine.map(
            verification,
            todo,
            input_bytes=sum(path.stat().st_size for path in fetched),
            what="dedup verification",
        ):
            draft.keep(part)
            parts.append(part)
    return draft.publish(
        parts, total_counts(parts) | {"clusters_verified_anew": sum(int(new.sum()) for _, new in unknown)}
    )


def _earlier(store: Store, work: Work) -> list[Path]:
    """The results of the version in use, if they mean the same, in the order of their keys."""
    if not store.has(keys.DEDUP_EVIDENCE):
        return []
    version = store.current(keys.DEDUP_EVIDENCE)
    same = version.manifest["code_version"] == work.code_version and version.manifest["params"] == json.loads(
        canonical_json(work.params)
    )
    return version.files(TABLE) if same and all(part.is_whole(version.path) for part in version.parts) else []


def _overlapping(earlier: Sequence[Path], name: str) -> tuple[Path, ...]:
    """Those of equal ranges of keys that share some with the range called `name`."""
    index, count = map(int, name.split("-of-"))
    return tuple(
        path
        for i, path in enumerate(earlier)
        if i * count < (index + 1) * len(earlier) and (i + 1) * count > index * len(earlier)
    )


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers from each start on, as many as its size says, one after the other."""
    return np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())


@dataclass(frozen=True)
class _Verification:
    """A shard to make: the `index`th of those, from `earlier` results where they hold a cluster, else from
    fetched texts.
    """

    index: int
    shard: Shard
    fingerprint: str
    earlier: tuple[Path, ...]

    def known(self) -> np.ndarray:
        """Which clusters the earlier results hold."""
        keys = [
            chunk
            for path in self.earlier
            for chunk in pq.read_table(path, columns=["key"]).column("key").chunks
        ]
        return pc.is_in(
            self.shard.column, value_set=pa.chunked_array(keys, SCHEMA.field("key").type)
        ).to_numpy(zero_copy_only=False)

    def part(self, directory: Path, fetched: tuple[Path, ...], params: dedup.DedupParams) -> Part:
        """Writes the results of all clusters of the shard."""
        before = pa.concat_tables([SCHEMA.empty_table(), *(pq.read_table(path) for path in self.earlier)])
        before = before.filter(pc.is_in(before.column("key"), value_set=self.shard.column))
        new = ~pc.is_in(self.shard.column, value_set=before.column("key")).to_numpy(zero_copy_only=False)
        results = pa.concat_tables([before, self._verified(new, fetched, params)]).combine_chunks()
        results = results.take(pc.index_in(self.shard.column, value_set=results.column("key")))
        with PartWriter(directory, self.shard.name, {TABLE: SCHEMA}) as writer:
            for batch in results.combine_chunks().to_batches():
                writer.write(TABLE, batch)
        return Part(
            self.shard.name,
            self.fingerprint,
            writer.files,
            {"clusters": len(new), "texts": int(self.shard.sizes.sum())},
        )

    def _verified(self, new: np.ndarray, fetched: tuple[Path, ...], params: dedup.DedupParams) -> pa.Table:
        texts, keys, sets = read(fetched, self.index)
        order = np.argsort(texts)  # texts are numbered from the best survivor to the worst
        found = dedup.verify(keys, sets, order, params)
        starts, sizes = self.shard.starts[new], self.shard.sizes[new]
        asked = _ranges(starts, sizes)
        place = order[np.searchsorted(texts, asked, sorter=order)]
        keeper = (texts[found.keeper[place]] - np.repeat(starts, sizes)).astype(np.int32)
        offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
        lists = [
            pa.ListArray.from_arrays(offsets, pa.array(values)) for values in (keeper, found.jaccard[place])
        ]
        return pa.table([self.shard.column.filter(pa.array(new)), *lists], schema=SCHEMA)
