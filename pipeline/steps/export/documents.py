"""The clean corpora as Parquet files that `datasets.load_dataset` opens."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.stages.held_out import held_out
from pipeline.steps.export.manifest import record
from pipeline.store import keys
from pipeline.store.atomic import output_directory
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import parquet_writer
from pipeline.store.parts import add, kept_documents, text_bytes
from pipeline.store.store import Store

SCHEMA = pa.schema([pa.field("corpus", pa.string(), nullable=False), *DOCUMENT_SCHEMA])
FILE_BYTES = 256_000_000  # of text in one file
Counts = dict[str, int]


def export_documents(
    store: Store,
    corpora: Sequence[str],
    splits: Sequence[str],
    validation_fraction: float,
    out: Path,
    progress: Callable[[int], object],
) -> Counts:
    """Makes `out`: every document that quality and dedup keep, as `<split>/<corpus>-<number>.parquet`, and a
    README.md that tells `datasets` so.

    Splits are those of the token shards. Memory is that of one row group. `progress` is told bytes of text.
    Raises StoreError and OutputError.
    """
    read = [keys.DEDUP, *(key for corpus in corpora for key in keys.judged(corpus))]
    counts: Counts = {f"{split}_{what}": 0 for split in splits for what in ("documents", "text_bytes")}
    with output_directory(out) as directory:
        for corpus in corpora:
            with (
                closing(_Files(directory, corpus, "train")) as train,
                closing(_Files(directory, corpus, "validation")) as validation,
            ):
                for batch in kept_documents(store, corpus, DOCUMENT_SCHEMA.names):
                    validates = held_out(batch.column("id"), validation_fraction)
                    for files, chosen in ((train, ~validates), (validation, validates)):
                        if files.split in splits:
                            rows = batch.filter(pa.array(chosen))
                            files.write(rows)
                            found = {"documents": rows.num_rows, "text_bytes": text_bytes(rows)}
                            add(counts, {f"{files.split}_{what}": count for what, count in found.items()})
                    progress(text_bytes(batch))
        (directory / "README.md").write_text(_card(directory, corpora), encoding="utf-8")
        record(directory, "parquet", store.data_versions(read), counts)
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
            self.writer = parquet_writer(path, SCHEMA)
        columns = [
            pa.repeat(self.corpus, documents.num_rows),
            *(documents.column(name) for name in DOCUMENT_SCHEMA.names),
        ]
        self.writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        self.size += text_bytes(documents)


def _card(out: Path, corpora: Sequence[str]) -> str:
    """One configuration with everything and one for each corpus; without it, `datasets` would guess splits
    from the names of the corpora.
    """
    lines = ["---", "configs:"]
    for name, pattern in (("default", "*"), *((corpus, f"{corpus}-*") for corpus in corpora)):
        found = [split for split in ("train", "validation") if any((out / split).glob(f"{pattern}.parquet"))]
        if found:
            lines += [f"- config_name: {name}", "  data_files:"]
            lines += [f"  - split: {split}\n    path: {split}/{pattern}.parquet" for split in found]
    lines += ["---", "", "Columns: corpus, id, text, source, url, metadata (JSON). Exported by Groundwork."]
    return "\n".join(lines) + "\n"
