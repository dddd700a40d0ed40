"""Shared by the dedup benchmarks: real text with near-duplicates, and a store to run the stage on."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.sidebyside import documents
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
PART_DOCUMENTS, BATCH_DOCUMENTS = 1000, 250


def pieces(names: Sequence[str]) -> Iterator[str]:
    """The documents of these corpora, the long ones cut at paragraphs to at most 8,000 characters."""
    for name in names:
        for document in documents(name):
            piece = ""
            for paragraph in document["text"].split("\n\n"):
                if piece and len(piece) + len(paragraph) > 8000:
                    yield piece
                    piece = ""
                piece += paragraph + "\n\n"
            yield piece


def edited(text: str, generator: np.random.Generator) -> str:
    """The text with one to three runs of up to 6% of its words left out, doubled or changed."""
    words = text.split(" ")
    for _ in range(int(generator.integers(1, 4))):
        at, size = int(generator.integers(len(words))), 1 + int(len(words) * generator.uniform(0, 0.06))
        words[at : at + size] = [[], words[at : at + size] * 2, ["changed"] * size][
            int(generator.integers(3))
        ]
    return " ".join(words)


def with_duplicates(names: Sequence[str], megabytes: float) -> list[str]:
    """The texts of these corpora, shuffled, and edited copies of random ones until they make `megabytes`."""
    generator = np.random.default_rng(0)
    found = list(pieces(names))
    size, originals = sum(len(text.encode()) for text in found), [text for text in found if len(text) > 400]
    while size < megabytes * 1e6:
        found.append(edited(originals[int(generator.integers(len(originals)))], generator))
        size += len(found[-1].encode())
    return [found[i] for i in generator.permutation(len(found))]


def batch(texts: Sequence[str], start: int = 0) -> pa.RecordBatch:
    """`id` (the position, from `start`) and `text`."""
    return pa.record_batch(
        {"id": [f"{start + i:08}" for i in range(len(texts))], "text": pa.array(texts, pa.large_string())}
    )


def parquet(texts: Sequence[str], folder: Path) -> Path:
    """One file, named by how many texts it holds, written once."""
    path = folder / f"{len(texts)}.parquet"
    if not path.exists():
        pq.write_table(pa.Table.from_batches([batch(texts)]), path, compression="zstd", row_group_size=5000)
    return path


def stored(store: Store, corpus: str, texts: Sequence[str]) -> None:
    """The texts as a corpus that quality keeps whole, in parts of PART_DOCUMENTS; known ones are found."""
    for stage, table, schema in (
        ("scrubbed", "documents", TEXT_SCHEMA),
        ("quality", "verdicts", VERDICTS_SCHEMA),
    ):
        with store.making(Work(Key(stage, corpus), "benchmark", {}, {"texts": combined(texts)})) as draft:
            if isinstance(draft, Draft):
                draft.publish(
                    [
                        _part(draft, table, schema, texts, start)
                        for start in range(0, len(texts), PART_DOCUMENTS)
                    ]
                )


def _part(draft: Draft, table: str, schema: pa.Schema, texts: Sequence[str], start: int) -> Part:
    name = f"{start:08}"
    with PartWriter(draft.path, name, {table: schema}) as writer:
        for first in range(start, min(start + PART_DOCUMENTS, len(texts)), BATCH_DOCUMENTS):
            rows = batch(texts[first : min(first + BATCH_DOCUMENTS, start + PART_DOCUMENTS)], first)
            columns = [rows.column(0), rows.column(1) if table == "documents" else pa.repeat(True, len(rows))]
            writer.write(table, pa.RecordBatch.from_arrays(columns, schema=schema))
    return Part(
        name, draft.work.fingerprint, writer.files, {"documents": len(texts[start : start + PART_DOCUMENTS])}
    )
