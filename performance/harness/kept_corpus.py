"""A corpus as it is before tokenizing: documents in Parquet parts, with a verdict that keeps them all."""

from collections.abc import Iterable
from itertools import count

import pyarrow as pa

from pipeline.store.draft import Draft
from pipeline.store.manifest import Part
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter
from pipeline.store.store import Store
from pipeline.store.work import Work

BATCH_BYTES = 6 << 20
KEEP_SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("keep", pa.bool_(), nullable=False)]
)
NAME = "sample"


def keep_all(store: Store, texts: Iterable[str], part_bytes: int) -> float:
    """Publishes documents, verdicts and decisions of a corpus `sample`; returns its megabytes of text."""
    stages = {
        f"corpora/{NAME}/scrubbed": ("documents", DOCUMENT_SCHEMA),
        f"corpora/{NAME}/quality": ("verdicts", KEEP_SCHEMA),
        "dedup": ("decisions", KEEP_SCHEMA),
    }
    drafts = {key: _draft(store, key) for key in stages}
    parts: dict[str, list[Part]] = {key: [] for key in stages}
    stream, total = _batches(texts), 0
    batch, size = next(stream)
    for number in count():
        names = {key: f"{NAME}.{number:06d}" if key == "dedup" else f"{number:06d}" for key in stages}
        writers = {key: PartWriter(drafts[key].path, names[key], dict([stages[key]])) for key in stages}
        in_part = 0
        while size and in_part < part_bytes:
            keep = pa.RecordBatch.from_arrays(
                [batch.column("id"), pa.repeat(True, batch.num_rows)], schema=KEEP_SCHEMA
            )
            for key, (table, _) in stages.items():
                writers[key].write(table, batch if table == "documents" else keep)
            in_part += size
            batch, size = next(stream, (batch, 0))
        for key, writer in writers.items():
            writer.__exit__(None, None, None)
            parts[key].append(
                Part(
                    names[key],
                    drafts[key].work.part_fingerprint([names[key]]),
                    writer.files,
                    {"text_bytes": in_part},
                )
            )
        total += in_part
        if not size:
            break
    for key, draft in drafts.items():
        draft.publish(parts[key])
    return total / 1e6


def _draft(store: Store, key: str) -> Draft:
    store.directory(key).mkdir(parents=True, exist_ok=True)
    return Draft(store, Work(key, "benchmark", {}, {}))


def _batches(texts: Iterable[str]) -> Iterable[tuple[pa.RecordBatch, int]]:
    rows: list[dict[str, str]] = []
    size = 0
    for number, text in enumerate(texts):
        rows.append({"id": f"{number:032x}", "text": text})
        size += len(text.encode())
        if size >= BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema=DOCUMENT_SCHEMA), size
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=DOCUMENT_SCHEMA), size
