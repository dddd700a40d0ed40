"""The documents that quality and dedup keep, read through their tables: text is not copied."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pipeline.store.parquet import kept_batches
from pipeline.store.versions import Store


def decision_name(corpus: str, part_name: str) -> str:
    return f"{corpus}.{part_name}"


def kept_documents(
    store: Store, corpus: str, columns: Sequence[str] = ("id", "text")
) -> Iterator[pa.RecordBatch]:
    """What remains of a corpus, batch by batch, in a fixed order. `columns` must have `id`."""
    scrubbed, quality, dedup = (
        store.current(key) for key in (f"corpora/{corpus}/scrubbed", f"corpora/{corpus}/quality", "dedup")
    )
    verdicts = {part.name: quality.file(part, "verdicts") for part in quality.parts}
    decisions = {part.name: dedup.file(part, "decisions") for part in dedup.parts}
    for part in scrubbed.parts:
        tables = [verdicts[part.name], decisions[decision_name(corpus, part.name)]]
        yield from kept_batches(scrubbed.file(part, "documents"), tables, list(columns))
