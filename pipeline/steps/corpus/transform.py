"""raw -> transformed: texts rewritten by the user's own code, where a recipe names some."""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.plugins.calling import FAILURES_SCHEMA, failures_table
from pipeline.plugins.loading import PluginError
from pipeline.plugins.settings import TransformParams
from pipeline.plugins.transforms import Transform, of_corpus
from pipeline.steps.corpus.failures import SLOWER, FailureLimits
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parts import BatchResult, BatchStep, Counts, derive, part_tasks, tally, text_bytes
from pipeline.store.store import Store
from pipeline.store.work import Work

VERSION = "transformed-2"


def transform(store: Store, engine: Engine, corpus: str, entries: Sequence[TransformParams]) -> Version:
    """The transformed version of a corpus: tables `documents` and `failures`, the documents set aside.

    Raises PluginError when the code cannot be loaded, or fails on more documents than allowed.
    """
    transforms = of_corpus(entries, corpus)
    raw = store.current(keys.raw(corpus))
    work = transform_work(store, corpus, entries)
    limits = FailureLimits(corpus, raw.counts["documents"], tuple(one.entry for one in transforms))
    step = BatchStep(
        partial(_transform, transforms=transforms),
        {"documents": DOCUMENT_SCHEMA, "failures": FAILURES_SCHEMA},
        ("documents", "text_bytes", "changed", "failed"),
    )
    tasks = part_tasks(work, [(raw, "documents")])
    version = derive(store, engine, work, tasks, step.write_part, limits.watch, slower=SLOWER)
    limits.check(version.parts, version)
    if not version.counts["documents"]:
        raise PluginError(
            f"the transforms failed on every document of corpus {corpus!r}: correct the code and raise its "
            "`version`"
        )
    return version


def transform_work(store: Store, corpus: str, entries: Sequence[TransformParams]) -> Work:
    params = {"transforms": [one.identity for one in of_corpus(entries, corpus)]}
    return Work(keys.transformed(corpus), VERSION, params, store.data_versions([keys.raw(corpus)]))


def _transform(batch: pa.RecordBatch, transforms: Sequence[Transform]) -> BatchResult:
    documents, failures = batch, []
    counts: Counts = {}
    for one in transforms:
        before = documents
        documents, failed = one.apply(documents)
        failures += failed
        counts[f"changed/{one.entry.name}"] = _changed(before, documents)
    table = failures_table(failures)
    counts |= {
        "documents": documents.num_rows,
        "text_bytes": text_bytes(documents),
        "changed": _changed(batch, documents),
        "failed": len(failures),
        **tally(table.column("name"), "failed"),
    }
    return {"documents": documents.cast(DOCUMENT_SCHEMA), "failures": table}, counts


def _changed(before: pa.RecordBatch, after: pa.RecordBatch) -> int:
    """How many of the documents that are left have another text."""
    if after.num_rows < before.num_rows:
        before = before.filter(pc.is_in(before.column("id"), value_set=after.column("id")))
    return pc.sum(pc.not_equal(before.column("text"), after.column("text"))).as_py() or 0
