"""The documents that quality and dedup keep, selected by their tables while reading: no copy is stored."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pipeline.store import keys
from pipeline.store.parquet import kept_batches
from pipeline.store.store import Store


def kept_documents(
    store: Store, corpus: str, columns: Sequence[str] = ("id", "text")
) -> Iterator[pa.RecordBatch]:
    """The kept documents of a corpus, batch by batch, in a fixed order. `columns` must include `id`."""
    scrubbed, quality, dedup = map(store.current, (*keys.judged(corpus), keys.DEDUP))
    verdicts = {part.name: quality.file(part, "verdicts") for part in quality.parts}
    decisions = {part.name: dedup.file(part, "decisions") for part in dedup.parts}
    for part in scrubbed.parts:
        tables = [verdicts[part.name], decisions[keys.decisions(corpus, part.name)]]
        yield from kept_batches(scrubbed.file(part, "documents"), tables, list(columns))
