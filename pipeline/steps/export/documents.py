"""The clean corpora as Parquet files that `datasets.load_dataset` opens."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.recipe.recipe import Recipe
from pipeline.stages.held_out import held_out
from pipeline.steps.export import croissant
from pipeline.steps.export.data_card import ExportedDocuments, card
from pipeline.steps.export.manifest import record
from pipeline.store import keys
from pipeline.store.atomic import output_directory
from pipeline.store.keys import VALIDATION
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import parquet_writer
from pipeline.store.parts import kept_documents, text_bytes
from pipeline.store.store import Store

SCHEMA = pa.schema([pa.field("corpus", pa.string(), nullable=False), *DOCUMENT_SCHEMA])
FILE_BYTES = 256_000_000  # of text in one file
CARD, FORMAT = "README.md", "parquet"


def export_documents(
    store: Store,
    recipe: Recipe,
    corpora: Sequence[str],
    splits: Sequence[str],
    *,
    out: Path,
    progress: Callable[[int], object],
) -> dict[str, int]:
    """Makes `out`: every document that quality and dedup keep, as `<split>/<corpus>-<number>.parquet`, a card
    that tells `datasets` so, and `croissant.json`. Returns documents and bytes of text of each split.

    Splits are those of the token shards. Memory is that of one row group. `progress` is told bytes of text.
    Raises StoreError and OutputError.
    """
    read = [keys.DEDUP, *(key for corpus in corpora for key in keys.judged(corpus))]
    fraction = recipe.shards.validation_fraction
    counts = {}
    with output_directory(out) as directory:
        for corpus in corpora:
            batches = kept_documents(store, corpus, DOCUMENT_SCHEMA.names)
            with ExitStack() as opened:
                wanted = [opened.enter_context(closing(_Files(directory, corpus, one))) for one in splits]
                counts[corpus] = _write(batches, wanted, fraction, progress)
        exported = ExportedDocuments.of(store, recipe, counts)
        (directory / CARD).write_text(card(directory, exported), encoding="utf-8")
        description = json.dumps(croissant.described(directory, exported), indent=1)
        (directory / croissant.FILE).write_text(description)
        totals = {
            name: sum(of_corpus[name] for of_corpus in counts.values())
            for name in (f"{split}_{what}" for split in splits for what in ("documents", "text_bytes"))
        }
        record(directory, FORMAT, store.data_versions(read), totals)
    return totals


def _write(
    batches: Iterable[pa.RecordBatch],
    wanted: Sequence["_Files"],
    fraction: float,
    progress: Callable[[int], object],
) -> Counter[str]:
    """Writes each document to the files of its split, if `wanted`. Returns documents and bytes by split."""
    counts = Counter[str]()
    for batch in batches:
        validates = held_out(batch.column("id"), fraction)
        for files in wanted:
            rows = batch.filter(pa.array(validates if files.split == VALIDATION else ~validates))
            files.write(rows)
            counts[f"{files.split}_documents"] += rows.num_rows
            counts[f"{files.split}_text_bytes"] += text_bytes(rows)
        progress(text_bytes(batch))
    return counts


@dataclass
class _Files:
    """The files of one corpus and split, the next one begun when FILE_BYTES of text are in one."""

    out: Path
    corpus: str
    split: str
    number: int = 0
    size: int = 0
    writer: pq.ParquetWriter | None = None

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer, self.size, self.number = None, 0, self.number + 1

    def write(self, documents: pa.RecordBatch) -> None:
        if not documents.num_rows:
            return
        if self.size >= FILE_BYTES:
            self.close()
        if self.writer is None:
            path = self.out / self.split / f"{self.corpus}-{self.number:05d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            self.writer = parquet_writer(path, SCHEMA, content_defined=True)
        columns = [
            pa.repeat(self.corpus, documents.num_rows),
            *(documents.column(name) for name in DOCUMENT_SCHEMA.names),
        ]
        self.writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        self.size += text_bytes(documents)
