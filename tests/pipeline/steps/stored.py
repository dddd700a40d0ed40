"""Corpora put into a store as scrubbing and quality would leave them, in parts of the test's choosing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from pipeline.steps.corpus.decontamination import VERDICTS_SCHEMA
from pipeline.store.draft import Draft
from pipeline.store.fingerprint import combined
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter
from pipeline.store.parts import PartTask
from pipeline.store.store import Store
from pipeline.store.work import Work

TEXT_SCHEMA = pa.schema([DOCUMENT_SCHEMA.field("id"), DOCUMENT_SCHEMA.field("text")])
Texts = Mapping[str, str]  # by id


def indexed_parts(monkeypatch: pytest.MonkeyPatch, indexing: ModuleType) -> list[str]:
    """The parts that this process indexes from now on."""
    found: list[str] = []
    index_part = indexing.index_part

    def making(task: PartTask, directory: Path) -> Part:
        found.append(task.name)
        return index_part(task, directory)

    monkeypatch.setattr(indexing, "index_part", making)
    return found


def contents(version: Version) -> list[bytes]:
    return [path.read_bytes() for path in version.opened()]


def put(
    store: Store, corpus: str, parts: Mapping[str, Texts], batch_rows: int = 3, rejected: Sequence[str] = ()
) -> None:
    """The documents of each part, a few to a row group; quality keeps all but the `rejected` ids."""
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
