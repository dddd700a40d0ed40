"""The documents of a corpus that dedup compares -> corpora/<name>/signatures, part by part."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.recipe.recipe import Recipe
from pipeline.stages import dedup
from pipeline.steps.stage import CorpusStage
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.files import StoredFile
from pipeline.store.keys import Key
from pipeline.store.manifest import File, Part, Version
from pipeline.store.params import required
from pipeline.store.parquet import PartWriter, kept_batches
from pipeline.store.parts import PartTask, derive, part_tasks
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.system.durable import atomic_file

Tables = Sequence[tuple[Version, str]]  # (version, table): the text of a corpus, then its verdicts
Corpora = Mapping[str, Tables]  # in the order in which they keep their documents

SCALARS = ["id", "exact", "length"]
RUN_SCHEMA = required(key=pa.uint64(), row=pa.uint32())


@dataclass(frozen=True)
class SignedPart:
    """A part of a corpus with its signatures. `start`: the global row of its first document. `sources`: its
    text, of `source_bytes` on disk, then its verdict tables.
    """

    corpus: str
    priority: int
    part: Part
    signatures: StoredFile
    runs: StoredFile
    sources: tuple[StoredFile, ...]
    source_bytes: int
    start: int
    rows: int

    @property
    def name(self) -> str:
        """The name of the decisions on this part."""
        return keys.DecidedPart(self.corpus, self.part.name).name

    def among(self, rows: np.ndarray) -> slice:
        """Where the rows of this part are in ascending global rows."""
        return slice(*np.searchsorted(rows, [self.start, self.start + self.rows]))


@dataclass(frozen=True)
class Signatures(CorpusStage):
    """The documents of a corpus that dedup compares. `compared`: whether it compares them at all."""

    params: dedup.DedupParams
    decontaminated: bool
    compared: bool

    name = "signatures"
    version = dedup.VERSION
    made_within = keys.DEDUP

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus, recipe.dedup, recipe.removes_contaminated, recipe.rules(corpus).dedup)]

    @property
    def inputs(self) -> Sequence[Key]:
        """The text of the documents, then the verdicts of quality and, on request, decontamination."""
        contamination = [keys.contamination(self.corpus)] if self.decontaminated else []
        return [*keys.judged(self.corpus), *contamination]

    def sources(self, store: Store) -> Tables:
        """The text and the verdicts of a corpus in the store."""
        documents, *verdicts = map(store.current, self.inputs)
        return [(documents, "documents"), *((version, "verdicts") for version in verdicts)]

    def work(self, store: Store) -> Work:
        settings = self.params if self.compared else {"compared": False, "bands": self.params.bands}
        return Work(self.key, self.version, settings, store.data_versions(self.inputs))

    def make(self, store: Store, engine: Engine) -> Version:
        """Makes the table `signatures` (id, exact hash, length) and `runs`: the keys of exact hash and bands,
        ascending, with their rows. Of documents that are not `compared` it has the ids, and no runs.
        """
        work = self.work(store)
        write = partial(_sign_part if self.compared else _list_part, params=self.params)
        return derive(store, engine, work, part_tasks(work, self.sources(store)), write)


def laid_out(corpora: Corpora, versions: Sequence[Version]) -> list[SignedPart]:
    """All parts in the order of the corpora, with the global rows of their documents."""
    signed: list[SignedPart] = []
    start = 0
    for priority, (corpus, version) in enumerate(zip(corpora, versions, strict=True)):
        by_name = [{part.name: part for part in source.parts} for source, _ in corpora[corpus]]
        for part in version.parts:
            tables = zip(corpora[corpus], by_name, strict=True)
            files = tuple(source.file(parts[part.name], table) for (source, table), parts in tables)
            size = by_name[0][part.name].files[corpora[corpus][0][1]].bytes
            signatures, runs = version.file(part, "signatures"), version.file(part, "runs")
            rows = part.counts["documents"]
            signed.append(SignedPart(corpus, priority, part, signatures, runs, files, size, start, rows))
            start += rows
    return signed


class Runs:
    """The sorted runs of a part, memory-mapped."""

    def __init__(self, file: StoredFile):
        self._file = pa.ipc.open_file(pa.memory_map(os.fspath(file)))

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys (uint64, ascending) and local rows (uint32): of the exact hash for 0, of band n - 1 for n."""
        batch = self._file.get_batch(number)
        return batch.column("key").to_numpy(), batch.column("row").to_numpy()


def _sign_part(task: PartTask, directory: Path, params: dedup.DedupParams) -> Part:
    counts = {"documents": 0, "truncated": 0}
    exact, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    of_bands = [np.zeros((0, params.bands), np.uint64)]
    schema = pa.schema([dedup.signature_schema(params).field(name) for name in SCALARS])
    with PartWriter(directory, task.name, {"signatures": schema}) as writer:
        for batch in kept_batches(task.inputs[0], list(task.inputs[1:]), ["id", "text"]):
            signed = dedup.signatures(batch, params)
            writer.write("signatures", signed.select(SCALARS))
            first = dedup.first_of_equal(signed)
            exact.append(dedup.exact_keys(signed.column("exact"), signed.column("num_shingles").to_numpy()))
            rows.append(first + counts["documents"])
            of_bands.append(dedup.band_keys(signed, params)[first])
            counts["documents"] += batch.num_rows
            counts["truncated"] += pc.sum(signed.column("truncated")).as_py()
    columns = np.concatenate(exact), np.concatenate(rows), np.concatenate(of_bands)
    runs = _write_runs(directory, task.name, *columns)
    return Part(task.name, task.fingerprint, writer.files | {"runs": runs}, counts)


def _list_part(task: PartTask, directory: Path, params: dedup.DedupParams) -> Part:
    documents = 0
    with PartWriter(directory, task.name, {"signatures": required(id=pa.string())}) as writer:
        for batch in kept_batches(task.inputs[0], list(task.inputs[1:]), ["id"]):
            writer.write("signatures", batch)
            documents += batch.num_rows
    nothing = np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros((0, params.bands), np.uint64)
    runs = _write_runs(directory, task.name, *nothing)
    return Part(task.name, task.fingerprint, writer.files | {"runs": runs}, {"documents": documents})


def _write_runs(
    directory: Path, name: str, exact: np.ndarray, rows: np.ndarray, of_bands: np.ndarray
) -> File:
    path = directory / "runs" / f"{name}.arrow"
    # Across the batches of the part too, the first row of equal texts stands for all of them.
    _, first = np.unique(exact[rows], return_index=True)
    first.sort()
    bands = ((of_bands[first, band], rows[first]) for band in range(of_bands.shape[1]))
    with atomic_file(path) as temporary, pa.ipc.new_file(str(temporary), RUN_SCHEMA) as writer:
        for column in ((exact, np.arange(len(exact))), *bands):
            key, row = dedup.sort_band(*column)
            arrays = [pa.array(key), pa.array(row.astype(np.uint32))]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=RUN_SCHEMA))
    return File.of(path, directory)
