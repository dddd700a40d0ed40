"""The kept documents of all corpora -> dedup: one decision for each, with its evidence.

Signatures are made part by part and found again when a part did not change. What all documents are held in memory for is about 130 bytes each
(id, exact hash, length, union-find) and, one band at a time, 32 bytes for its keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.engine import Engine
from pipeline.flows.kept import decision_name
from pipeline.flows.parts import PartTask, derive, part_tasks, tally
from pipeline.parquet import PartWriter, kept_batches
from pipeline.stages import dedup
from pipeline.store import Draft, Part, Store, Version, Work

KEY = "dedup"
SCALARS = ["id", "exact", "num_shingles", "length"]


@dataclass(frozen=True)
class Signed:
    """A part of a corpus with its signatures; `start` is the global row of its first document."""

    corpus: str
    priority: int
    part: Part
    signatures: Path
    start: int
    rows: int

    @property
    def stop(self) -> int:
        return self.start + self.rows


def deduplicate(store: Store, engine: Engine, corpora: Sequence[str], params: dedup.DedupParams) -> Version:
    """Table `decisions`, in one part for each part of each corpus. Of duplicates the one in the earlier corpus stays, then the longer, then by id."""
    versions = [sign(store, engine, corpus, params) for corpus in corpora]
    settings = {"dedup": params, "corpora": list(corpora)}  # in their order: it decides which of two duplicates stays
    work = Work(KEY, dedup.VERSION, settings, {version.key: version.data_version for version in versions})
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        signed = _laid_out(corpora, versions)
        decisions = _decide(store, engine, signed, params)
        return draft.publish([_write(draft, piece, decisions.slice(piece.start, piece.rows)) for piece in signed])


def sign(store: Store, engine: Engine, corpus: str, params: dedup.DedupParams) -> Version:
    """corpora/<corpus>/signatures: the signature and the band keys of each document that quality keeps."""
    scrubbed, quality = store.current(f"corpora/{corpus}/scrubbed"), store.current(f"corpora/{corpus}/quality")
    inputs = {version.key: version.data_version for version in (scrubbed, quality)}
    work = Work(f"corpora/{corpus}/signatures", dedup.VERSION, params, inputs)
    tasks = part_tasks(work, [(scrubbed, "documents"), (quality, "verdicts")])
    return derive(store, engine, work, tasks, partial(_sign_part, params=params))


def _sign_part(task: PartTask, directory: Path, params: dedup.DedupParams) -> Part:
    counts = {"documents": 0, "truncated": 0}
    schema = _stored_schema(params)
    with PartWriter(directory, task.name, {"signatures": schema}) as writer:
        for batch in kept_batches(task.inputs[0], [task.inputs[1]], ["id", "text"]):
            signed = dedup.signatures(batch, params)
            keys = dedup.band_keys(signed, params)
            columns = [signed.column(name) for name in SCALARS] + [pa.array(keys[:, band]) for band in range(params.bands)]
            writer.write("signatures", pa.RecordBatch.from_arrays(columns, schema=schema))
            counts["documents"] += batch.num_rows
            counts["truncated"] += pc.sum(signed.column("truncated")).as_py()
    return Part(task.name, task.fingerprint, writer.files, counts)


def _stored_schema(params: dedup.DedupParams) -> pa.Schema:
    """Band keys instead of MinHash values, a column for each: a quarter of the size, and one band can be read alone."""
    scalars = [dedup.signature_schema(params).field(name) for name in SCALARS]
    return pa.schema([*scalars, *(pa.field(_band(band), pa.uint64()) for band in range(params.bands))])


def _band(band: int) -> str:
    return f"band_{band:03d}"


def _laid_out(corpora: Sequence[str], versions: Sequence[Version]) -> list[Signed]:
    signed: list[Signed] = []
    start = 0
    for priority, (corpus, version) in enumerate(zip(corpora, versions, strict=True)):
        for part in version.parts:
            signed.append(Signed(corpus, priority, part, version.file(part, "signatures"), start, part.counts["documents"]))
            start = signed[-1].stop
    return signed


def _decide(store: Store, engine: Engine, signed: Sequence[Signed], params: dedup.DedupParams) -> pa.Table:
    scalars = pa.concat_tables([pq.read_table(piece.signatures, columns=SCALARS) for piece in signed]).combine_chunks()
    num_shingles, length = scalars.column("num_shingles").to_numpy(), scalars.column("length").to_numpy()
    groups = dedup.exact_groups(scalars.column("exact"), num_shingles)
    priority = np.repeat([piece.priority for piece in signed], [piece.rows for piece in signed])
    order = dedup.survivor_order(priority, length, scalars.column("id"))
    best = dedup.group_survivors(groups, order)
    nodes = _linked(signed, groups, num_shingles, params)
    keys = np.stack([_column(signed, band)[nodes] for band in range(params.bands)], axis=1)
    verified = dedup.verify(keys, _shingle_sets(store, engine, signed, nodes, params), dedup.order_of(nodes, best, order), params)
    return dedup.decide(scalars.column("id"), groups, best, nodes, verified)


def _linked(signed: Sequence[Signed], groups: np.ndarray, num_shingles: np.ndarray, params: dedup.DedupParams) -> np.ndarray:
    """The global rows (ascending) that share a band key, directly or through others, with another document."""
    distinct = np.flatnonzero((groups == np.arange(len(groups))) & (num_shingles > 0))
    parents = dedup.singletons(len(groups))
    for band in range(params.bands):
        dedup.unite(parents, *dedup.candidate_pairs(*dedup.sort_band(_column(signed, band)[distinct], distinct)))
    return dedup.linked(dedup.labels(parents))


def _column(signed: Sequence[Signed], band: int) -> np.ndarray:
    """The keys of one band for all documents, uint64[n]."""
    return np.concatenate([pq.read_table(piece.signatures, columns=[_band(band)]).column(0).to_numpy() for piece in signed])


def _shingle_sets(store: Store, engine: Engine, signed: Sequence[Signed], nodes: np.ndarray, params: dedup.DedupParams) -> dedup.ShingleSets:
    """The shingles of the candidates, read from the parts that hold any."""
    fetches = []
    for piece in signed:
        rows = nodes[np.searchsorted(nodes, piece.start) : np.searchsorted(nodes, piece.stop)] - piece.start
        if len(rows):
            scrubbed, quality = store.current(f"corpora/{piece.corpus}/scrubbed"), store.current(f"corpora/{piece.corpus}/quality")
            documents, verdicts = (next(found for found in version.parts if found.name == piece.part.name) for version in (scrubbed, quality))
            fetches.append(_Fetch(scrubbed.file(documents, "documents"), quality.file(verdicts, "verdicts"), rows, params))
    input_bytes = sum(fetch.documents.stat().st_size for fetch in fetches)
    return dedup.concat_sets(list(engine.map(_Fetch.sets, fetches, input_bytes=input_bytes, what="dedup verification")))


@dataclass(frozen=True)
class _Fetch:
    """Shingle sets of some kept documents of one part: `rows` (ascending) count the documents that quality keeps."""

    documents: Path
    verdicts: Path
    rows: np.ndarray
    params: dedup.DedupParams

    def sets(self) -> dedup.ShingleSets:
        found = []
        start = 0
        for batch in kept_batches(self.documents, [self.verdicts], ["id", "text"]):
            rows = self.rows[np.searchsorted(self.rows, start) : np.searchsorted(self.rows, start + batch.num_rows)] - start
            if len(rows):
                found.append(dedup.shingle_sets(batch.take(pa.array(rows)), self.params))
            start += batch.num_rows
        return dedup.concat_sets(found)


def _write(draft: Draft, piece: Signed, decisions: pa.Table) -> Part:
    name = decision_name(piece.corpus, piece.part.name)
    with PartWriter(draft.path, name, {"decisions": dedup.DECISION_SCHEMA}) as writer:
        for batch in decisions.to_batches():
            writer.write("decisions", batch)
    kept = pc.sum(decisions.column("keep")).as_py() or 0
    counts = {"documents": piece.rows, "kept": kept, "removed": piece.rows - kept, **tally(decisions.column("reason"), "removed")}
    return Part(name, draft.work.part_fingerprint([name, *draft.work.inputs.values()]), writer.files, counts)
