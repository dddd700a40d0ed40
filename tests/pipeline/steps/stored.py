"""Corpora put into a store as scrubbing and quality would leave them, in parts of the test's choosing."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pipeline.steps.corpus.decontamination import VERDICTS_SCHEMA
from pipeline.store.draft import Draft
from pipeline.store.fingerprint import combined
from pipeline.store.keys import Key
from pipeline.store.manifest import Part
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter
from pipeline.store.store import Store
from pipeline.store.work import Work

TEXT_SCHEMA = pa.schema([DOCUMENT_SCHEMA.field("id"), DOCUMENT_SCHEMA.field("text")])
Texts = Mapping[str, str]  # by id


def put(
    store: Store, corpus: str, parts: Mapping[str, Texts], batch_rows: int = 3, rejected: Sequence[str] = ()
) -> None:
    """The documents of each part, a few to a row group, all of which quality keeps but for the `rejected`
    ids.
    """
    for stage, table, schema in (
        ("scrubbed", "documents", TEXT_SCHEMA),
        ("quality", "verdicts", VERDICTS_SCHEMA),
    ):
        made_from = combined(
            f"{name} {key} {text} {key in rejected}"
            for name, texts in parts.items()
            for key, text in texts.items()
        )
        with store.making(Work(Key(stage, corpus), "test", {}, {"made from": made_from})) as draft:
            if isinstance(draft, Draft):
                draft.publish(
                    [
                        _written(draft, table, schema, name, texts, batch_rows, rejected)
                        for name, texts in parts.items()
                    ]
                )


def _written(
    draft: Draft,
    table: str,
    schema: pa.Schema,
    name: str,
    texts: Texts,
    batch_rows: int,
    rejected: Sequence[str],
) -> Part:
    rows = [{"id": key, "text": text, "keep": key not in rejected} for key, text in texts.items()]
    with PartWriter(draft.path, name, {table: schema}) as writer:
        for start in range(0, len(rows), batch_rows):
            writer.write(
                table,
                pa.RecordBatch.from_pylist(
                    [{k: row[k] for k in schema.names} for row in rows[start : start + batch_rows]], schema
                ),
            )
    size = sum(len(text.encode()) for text in texts.values())
    kept = sum(row["keep"] for row in rows)
    counts = {"documents": len(rows), "text_bytes": size, "kept": kept, "rejected": len(rows) - kept}
    return Part(name, draft.work.fingerprint, writer.files, counts)
