"""Scrubbed text -> passage_index/<corpus>: the sorted MinHashes of its passages. And the search in them for
documents that are nearly the same as a text, hold most of it, or are held in it: MinHashes give candidates,
and each of these is compared with the text, exactly.

All documents are in it, also those that quality rejects or dedup removes. For each part:

documents   Parquet: `id`, `passages`, in the order of the part
values      `>u4` [passages, NUM_PERM]: the MinHash of each passage. Big-endian, as datasketch compares bytes
orders      `<u4` [NUM_PERM, passages]: as `sorted_bands` makes them
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.stages.dedup import passages, shingle_sets
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.forgotten import Forgotten
from pipeline.store.manifest import File, Part, Version
from pipeline.store.params import required
from pipeline.store.parquet import PartWriter, batches, numbered_rows, read_table
from pipeline.store.parts import PartTask, derive, part_tasks
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.data.memmap import map_file
from trainer.system.durable import atomic_file

SCHEMA = required(id=pa.string(), passages=pa.uint32())
VALUES, ORDERS = np.dtype(">u4"), np.dtype("<u4")
BYTES_PER_BYTE = 0.7  # of text with some 6 bytes a word; of documents shorter than a passage more
BYTES_PER_SECOND = 40_000_000  # of text, one core
LEAST_ALIKE = 0.25  # of the shingles of one that the other has. Where 3 words of 10 are replaced, 0.34 stay
SHARED = 7  # shingles in common, at least: 5 are those of any two texts, such as "the way in which they"
WINDOWS = 16  # passages of a long text that are looked for, evenly spaced
CANDIDATES = 100  # documents that are compared with the text
COLUMNS = ["id", "text", "source", "url"]


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


@dataclass(frozen=True)
class Match:
    """A document that is like a text: its COLUMNS are in `row`, `version` is the number of its scrubbed text.
    Of their distinct shingles, `holds` is the share of the text's that the document has, `held` the share of
    the document's that the text has, and `jaccard` what both have, of all that either has.
    """

    version: int
    part: str
    row: Mapping[str, Any]
    jaccard: float
    holds: float
    held: float

    @property
    def in_common(self) -> float:
        return self.holds + self.held


class Matcher:
    """Scrubbed text with its indexes, open to be searched. A match reaches `least` in `holds` or in `held`. A
    document that was `forgotten` is not found, even where it is still stored.
    """

    def __init__(self, indexed: Sequence[tuple[Version, Version]], least: float, forgotten: Forgotten):
        self._indexed, self._least, self._forgotten = indexed, least, forgotten
        self._parts = [
            (number, part)
            for number, (_, index) in enumerate(indexed)
            for part in index.parts
            if part.counts["passages"]
        ]
        found = [opened(indexed[number][1], part) for number, part in self._parts]
        self._firsts = np.cumsum([0, *(len(values) for values, _ in found)])
        self._ends: dict[int, np.ndarray] = {}  # of the passages of each document of a part
        self._search = passages.PassageSearch(found, least) if found else None

    def matches(self, text: str) -> Iterator[Match]:
        """The documents that have enough in common with a text, in no order."""
        asked = shingle_sets(_documents(text), passages.SHINGLES).hashes
        for place, numbers in self._candidates(text).items():
            version, part = self._parts[place]
            documents = self._indexed[version][0].named(part.name, "documents")
            table = numbered_rows(documents, numbers, COLUMNS)
            table = table.filter(pa.array(~self._forgotten.among(table.column("id"))))
            for batch in table.to_batches():
                sets = shingle_sets(batch, passages.SHINGLES)
                for number, row in enumerate(batch.to_pylist()):
                    own = sets.hashes[sets.offsets[number] : sets.offsets[number + 1]]
                    common = len(np.intersect1d(asked, own, assume_unique=True))
                    shares = (
                        common / size for size in (len(asked) + len(own) - common, len(asked), len(own))
                    )
                    match = Match(version, part.name, row, *shares)
                    if common >= SHARED and max(match.holds, match.held) >= self._least:
                        yield match

    def _candidates(self, text: str) -> dict[int, np.ndarray]:
        """The ascending numbers of documents in their part, by the place of the part: those with most MinHash
        values in common with the windows of the text.
        """
        scores: dict[tuple[int, int], int] = defaultdict(int)
        for found in self._passages(*windows(text)):
            best: dict[tuple[int, int], int] = {}
            for passage, common in zip(*found, strict=True):
                best.setdefault(self._document(passage), int(common))  # the most of one document come first
            for document, common in best.items():
                scores[document] += common
        chosen: dict[int, list[int]] = defaultdict(list)
        for place, number in sorted(scores, key=lambda one: (-scores[one], one))[:CANDIDATES]:
            chosen[place].append(number)
        return {place: np.array(sorted(numbers), np.int64) for place, numbers in chosen.items()}

    def _passages(self, minhashes: np.ndarray, sizes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The passages for each window of a text, and how many MinHash values they have in common with it. A
        text of one window may be shorter than a passage that holds it. The windows of a longer text are as
        long as passages.
        """
        if self._search and len(sizes) == 1:
            yield self._search.holding(minhashes[0], int(sizes[0]), CANDIDATES)
        elif self._search:
            for window in np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), WINDOWS)).astype(int)):
                yield self._search.like(minhashes[window], CANDIDATES)

    def _document(self, passage: int) -> tuple[int, int]:
        """The place of the part that a passage is of, and the number of its document there."""
        place = int(np.searchsorted(self._firsts, passage, side="right")) - 1
        if place not in self._ends:
            version, part = self._parts[place]
            documents = self._indexed[version][1].file(part, "documents")
            numbers = read_table(documents, ["passages"]).column("passages").to_numpy()
            self._ends[place] = np.cumsum(numbers, dtype=np.int64)
        return place, int(np.searchsorted(self._ends[place], passage - self._firsts[place], side="right"))


def windows(text: str) -> tuple[np.ndarray, np.ndarray]:
    """The MinHashes of the passages of a text, and their numbers of shingles."""
    return passages.passages(_documents(text))[:2]


def _documents(text: str) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array([text], pa.large_string())})
