"""A source of text -> evaluation_texts/<name>: windows that every checkpoint is scored on, whatever recipe,
filters and tokenizer made it.
"""

import logging

import pyarrow as pa

from pipeline.recipe.evaluation import EvaluationText
from pipeline.stages import pii, text_windows
from pipeline.steps.corpus.ingest import collect
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import PartWriter, batches, read_table
from pipeline.store.store import Store
from pipeline.store.work import Work

log = logging.getLogger(__name__)
PART_BYTES = 128_000_000
TABLE = "windows"
# The same for all recipes, whatever they scrub of their corpora.
SCRUBBED = pii.PiiParams()


def cut(store: Store, engine: Engine, name: str, text: EvaluationText) -> Version:
    """The windows of an evaluation text: table `windows`. The text is read whole and scrubbed, but neither
    filtered nor deduplicated. Raises SourceError, and CorpusError when it holds no text.
    """
    raw = collect(store, engine, corpus_name(name), text.source, PART_BYTES)
    with store.making(cut_work(store, name, text)) as draft:
        if isinstance(draft, Version):
            return draft
        read = (batch for path in raw.files("documents") for batch in batches(path))
        scrubbed = (pii.scrub(batch, SCRUBBED)[0] for batch in read)
        windows, counts = text_windows.drawn(scrubbed, text.max_bytes)
        if counts["scored_bytes"] < counts["text_bytes"]:
            log.info(
                "evaluation text %s: %s of %s bytes are scored (max_bytes)",
                name,
                f"{counts['scored_bytes']:,}",
                f"{counts['text_bytes']:,}",
            )
        with PartWriter(draft.path, TABLE, {TABLE: text_windows.SCHEMA}) as writer:
            for batch in windows.to_batches():
                writer.write(TABLE, batch)
        return draft.publish([Part(TABLE, draft.work.fingerprint, writer.files, counts)])


def cut_work(store: Store, name: str, text: EvaluationText) -> Work:
    inputs = store.data_versions([keys.raw(corpus_name(name))])
    version = f"{text_windows.VERSION} {pii.VERSION}"
    return Work(keys.evaluation_text(name), version, {"max_bytes": text.max_bytes}, inputs)


def corpus_name(name: str) -> str:
    """The name of an evaluation text in place of a corpus in the store. A corpus has no '.' in its name."""
    return f"text.{name}"


def scored(store: Store, name: str) -> pa.Table:
    """The windows of an evaluation text. Raises StoreError when it has not been read yet."""
    return read_table(store.current(keys.evaluation_text(name)).only(TABLE))
