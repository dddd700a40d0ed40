"""raw -> scrubbed: personal data replaced in the text, and a table of where it was."""

from functools import partial
from pathlib import Path

from pipeline.stages import pii
from pipeline.store import keys
from pipeline.store.engine import Engine
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import PartTask, add, derive, part_tasks, tally, text_bytes
from pipeline.store.versions import Part, Store, Version, Work


def scrub(store: Store, engine: Engine, corpus: str, params: pii.PiiParams) -> Version:
    """The scrubbed version of a corpus: tables `documents` and `spans`."""
    raw = store.current(keys.raw(corpus))
    work = Work(keys.scrubbed(corpus), pii.VERSION, params, {raw.key: raw.data_version})
    return derive(
        store, engine, work, part_tasks(work, [(raw, "documents")]), partial(_scrub_part, params=params)
    )


def _scrub_part(task: PartTask, directory: Path, params: pii.PiiParams) -> Part:
    counts = {"documents": 0, "text_bytes": 0, "documents_with_pii": 0, "spans": 0}
    with PartWriter(
        directory, task.name, {"documents": DOCUMENT_SCHEMA, "spans": pii.SPANS_SCHEMA}
    ) as writer:
        for batch in batches(task.inputs[0]):
            documents, spans = pii.scrub(batch, params)
            writer.write("documents", documents)
            writer.write("spans", spans)
            ids = spans.column("id")
            add(counts, {"documents": documents.num_rows, "text_bytes": text_bytes(documents)})
            add(counts, {"documents_with_pii": len(ids.unique()), "spans": len(ids)})
            add(counts, tally(spans.column("kind"), "spans"))
    return Part(task.name, task.fingerprint, writer.files, counts)
