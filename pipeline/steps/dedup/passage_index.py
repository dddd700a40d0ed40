"""Scrubbed text -> passage_index/<corpus>: the MinHashes of its passages, sorted to be searched.

All documents are in it, also those that quality rejects or dedup removes. For each part:

documents   Parquet: `id`, `passages`, in the order of the part
values      `>u4` [passages, NUM_PERM]: the MinHash of each passage. Big-endian, as datasketch compares bytes
orders      `<u4` [NUM_PERM, passages]: as `sorted_bands` makes them
"""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.stages.dedup import passages
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import File, Part, Version
from pipeline.store.params import required
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import PartTask, derive, part_tasks
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.data.memmap import map_file
from trainer.system.durable import atomic_file

SCHEMA = required(id=pa.string(), passages=pa.uint32())
VALUES, ORDERS = np.dtype(">u4"), np.dtype("<u4")
BYTES_PER_BYTE = 0.7  # of text with some 6 bytes a word; of documents shorter than a passage more
BYTES_PER_SECOND = 40_000_000  # of text, one core


def index_work(scrubbed: Version) -> Work:
    inputs = {str(scrubbed.key): scrubbed.data_version}
    return Work(keys.passage_index(scrubbed.key.corpus), passages.VERSION, {}, inputs)


def index(store: Store, engine: Engine, scrubbed: Version) -> Version:
    """The index of a version of scrubbed text. A part is made again only when its text has changed."""
    work = index_work(scrubbed)
    return derive(store, engine, work, part_tasks(work, [(scrubbed, "documents")]), index_part)


def index_part(task: PartTask, directory: Path) -> Part:
    """Writes the passages of one part. Memory: about twice that of its text."""
    values, documents = [np.zeros((0, passages.NUM_PERM), np.uint32)], 0
    with PartWriter(directory, task.name, {"documents": SCHEMA}) as writer:
        for batch in batches(task.inputs[0], ["id", "text"]):
            found, _, numbers = passages.passages(batch)
            values.append(found.copy())  # without the memory that was set aside
            columns = [batch.column("id"), pa.array(numbers, pa.uint32())]
            writer.write("documents", pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            documents += batch.num_rows
    joined = np.concatenate(values)
    tables = {"values": joined.astype(VALUES), "orders": passages.sorted_bands(joined).astype(ORDERS)}
    files = writer.files | {
        table: _write_array(directory / table / f"{task.name}.bin", directory, array)
        for table, array in tables.items()
    }
    return Part(task.name, task.fingerprint, files, {"documents": documents, "passages": len(joined)})


def _write_array(path: Path, directory: Path, array: np.ndarray) -> File:
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        file.write(np.ascontiguousarray(array).data)
    return File.of(path, directory)


def opened(index: Version, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """The values and orders of a part, memory-mapped."""
    values, orders = (Path(os.fspath(index.file(part, table))) for table in ("values", "orders"))
    return (
        map_file(values, VALUES).reshape(-1, passages.NUM_PERM),
        map_file(orders, ORDERS).reshape(passages.NUM_PERM, -1),
    )
