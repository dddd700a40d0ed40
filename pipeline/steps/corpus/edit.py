"""raw or transformed -> edited: lines cut out of the texts, and a table of what was cut and where it was."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.stages import edits
from pipeline.steps.corpus import repeated_units
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Part, Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import Counts, PartTask, add, derive, part_tasks, tally, text_bytes
from pipeline.store.store import Store
from pipeline.store.work import Work

SCHEMAS = {"documents": DOCUMENT_SCHEMA, "cuts": edits.CUTS_SCHEMA}
COUNTED = ("documents", "text_bytes", "changed", "cuts", "bytes_cut")


def edit(store: Store, engine: Engine, corpus: str, params: edits.EditParams, read: str) -> Version:
    """The edited version of a corpus: tables `documents` and `cuts`. `read`: the key of its documents."""
    repeated = params.repeated and repeated_units.find(store, engine, corpus, params.repeated, read)
    work = edit_work(store, corpus, params, read)
    tasks = part_tasks(work, [(store.current(read), "documents")])
    if repeated:
        tasks = [_with(task, work, repeated) for task in tasks]
    return derive(store, engine, work, tasks, partial(_edit_part, params=params))


def edit_work(store: Store, corpus: str, params: edits.EditParams, read: str) -> Work:
    inputs = [read, *([keys.repeated_units(corpus)] if params.repeated else [])]
    return Work(keys.edited(corpus), edits.VERSION, params, store.data_versions(inputs))


def _with(task: PartTask, work: Work, repeated: Version) -> PartTask:
    """The task, which also reads what is repeated in the corpus."""
    files = tuple(repeated.files(repeated_units.TABLE))
    fingerprint = work.part_fingerprint([task.fingerprint, repeated.data_version])
    return PartTask(task.name, fingerprint, (*task.inputs, *files), task.bytes)


def _edit_part(task: PartTask, directory: Path, params: edits.EditParams) -> Part:
    documents, *ranges = task.inputs
    repeated = repeated_units.of_part(task.name, ranges)
    seen = np.zeros(len(repeated), np.bool_)
    counts: Counts = dict.fromkeys(COUNTED, 0)
    with PartWriter(directory, task.name, SCHEMAS) as writer:
        for batch in batches(documents):
            edited, cuts = edits.edit(batch, params, repeated, seen)
            writer.write("documents", edited.cast(DOCUMENT_SCHEMA))
            writer.write("cuts", cuts)
            add(counts, _counted(edited, cuts))
    return Part(task.name, task.fingerprint, writer.files, counts)


def _counted(edited: pa.RecordBatch, cuts: pa.RecordBatch) -> Counts:
    return {
        "documents": edited.num_rows,
        "text_bytes": text_bytes(edited),
        "changed": len(cuts.column("id").unique()),
        "cuts": cuts.num_rows,
        "bytes_cut": text_bytes(cuts),
        **tally(cuts.column("rule"), "cuts"),
    }


def texts_before(version: Version) -> Iterator[tuple[str, str]]:
    """The id and the text before the edits of each document, part by part."""
    for part in version.parts:
        cuts: dict[str, list[tuple[int, str]]] = {}
        for batch in batches(version.file(part, "cuts"), ["id", "start", "text"]):
            for row in batch.to_pylist():
                cuts.setdefault(row["id"], []).append((row["start"], row["text"]))
        for batch in batches(version.file(part, "documents"), ["id", "text"]):
            for row in batch.to_pylist():
                yield row["id"], edits.restored(row["text"], cuts.get(row["id"], []))
