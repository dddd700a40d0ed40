"""raw, transformed or edited -> scrubbed: personal data replaced, and a table of where it was in the text."""

from functools import partial

import pyarrow as pa

from pipeline.stages import pii
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parts import BatchResult, BatchStep, derive, part_tasks, tally, text_bytes
from pipeline.store.store import Store
from pipeline.store.work import Work


def scrub(
    store: Store, engine: Engine, corpus: str, params: pii.PiiParams, read: str | None = None
) -> Version:
    """The scrubbed version of a corpus: tables `documents` and `spans`. `read`: the key of its documents, by
    default the raw ones.
    """
    read = read or keys.raw(corpus)
    work = scrub_work(store, corpus, params, read)
    tasks = part_tasks(work, [(store.current(read), "documents")])
    return derive(store, engine, work, tasks, scrubbing(params).write_part)


def scrub_work(store: Store, corpus: str, params: pii.PiiParams, read: str) -> Work:
    return Work(keys.scrubbed(corpus), pii.VERSION, params, store.data_versions([read]))


def scrubbing(params: pii.PiiParams) -> BatchStep:
    """Documents in; scrubbed `documents`, URL and metadata too, and the `spans` of their text out."""
    return BatchStep(
        partial(_scrub, params=params),
        {"documents": DOCUMENT_SCHEMA, "spans": pii.SPANS_SCHEMA},
        ("documents", "text_bytes", "documents_with_pii", "spans", "spans_in_url", "spans_in_metadata"),
    )


def _scrub(batch: pa.RecordBatch, params: pii.PiiParams) -> BatchResult:
    documents, spans = pii.scrub(batch, params)
    documents, elsewhere = pii.scrub_fields(documents, params)
    ids = spans.column("id")
    counts = {
        "documents": documents.num_rows,
        "text_bytes": text_bytes(documents),
        "documents_with_pii": len(ids.unique()),
        "spans": len(ids),
        **{f"spans_in_{column}": count for column, count in elsewhere.items()},
    }
    return {"documents": documents, "spans": spans}, counts | tally(spans.column("kind"), "spans")
