"""The lines and paragraphs that several documents of a corpus have.

Each part's are counted as hashes, 13 bytes for each, and the counts of all parts are added up one range of
hashes at a time. Memory: such a range.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Self

import numpy as np

from pipeline.recipe.recipe import Recipe
from pipeline.stages import edits
from pipeline.steps.corpus.transform import text_after_transforms
from pipeline.steps.stage import CorpusStage
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.files import StoredFile
from pipeline.store.keys import Key
from pipeline.store.manifest import File, Part, Version
from pipeline.store.parquet import batches
from pipeline.store.parts import Counts, PartTask, derive, part_tasks
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.system.durable import atomic_file

VERSION = "repeated-units-1"
TABLE = "units"
RANGE_UNITS = 8_000_000  # of all parts, that a task sorts at a time, in about 0.4 GB
# Sorted by the hash of the part's name, then by hash.
FOUND = np.dtype([("part", "<u8"), *edits.REPEATED.descr])


@dataclass(frozen=True)
class UnitCounts(CorpusStage):
    """The units of each part as hashes. `documents`: the key of what is counted."""

    documents: Key
    rules: tuple[edits.Repeated, ...]

    name = "unit_counts"
    version = VERSION
    made_within = keys.edited(keys.ANY_CORPUS)

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus, units.documents, units.rules) for units in RepeatedUnits.of(recipe, corpus)]

    @property
    def inputs(self) -> Sequence[Key]:
        return [self.documents]

    def work(self, store: Store) -> Work:
        params = [rule.model_dump(include={"unit", "within", "min_chars"}) for rule in self.rules]
        return Work(self.key, self.version, {"rules": params}, store.data_versions(self.inputs))

    def make(self, store: Store, engine: Engine) -> Version:
        work = self.work(store)
        tasks = part_tasks(work, [(store.current(self.documents), "documents")])
        return derive(store, engine, work, tasks, partial(_count_part, rules=self.rules))


@dataclass(frozen=True)
class RepeatedUnits(CorpusStage):
    """The units that each part shares with others, from as many documents on as its rule says: one file of
    FOUND for each range of hashes. `documents`: the key of what is searched.
    """

    documents: Key
    rules: tuple[edits.Repeated, ...]

    name = "repeated_units"
    version = VERSION
    made_within = keys.edited(keys.ANY_CORPUS)

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        rules = tuple(recipe.rules(corpus).edits.repeated)
        return [cls(corpus, text_after_transforms(recipe, corpus), rules)] if rules else []

    @property
    def counts(self) -> UnitCounts:
        return UnitCounts(self.corpus, self.documents, self.rules)

    @property
    def inputs(self) -> Sequence[Key]:
        return [self.counts.key]

    def work(self, store: Store) -> Work:
        params = {"rules": [rule.model_dump() for rule in self.rules]}
        return Work(self.key, self.version, params, store.data_versions(self.inputs))

    def make(self, store: Store, engine: Engine) -> Version:
        counted = self.counts.make(store, engine)
        work = self.work(store)
        ranges = max(1, -(-counted.counts["units"] // RANGE_UNITS))
        files = tuple(counted.files(TABLE))
        size = sum(part.files[TABLE].bytes for part in counted.parts)
        tasks = [
            PartTask(
                f"{number:06d}-{ranges}",
                work.part_fingerprint([counted.data_version, str(number), str(ranges)]),
                files,
                size // ranges,
            )
            for number in range(ranges)
        ]
        names = [part.name for part in counted.parts]
        return derive(store, engine, work, tasks, partial(_find_range, names=names, rules=self.rules))


def of_part(name: str, ranges: Sequence[StoredFile]) -> np.ndarray:
    """REPEATED: what is cut in a part."""
    found = [np.zeros(0, edits.REPEATED)]
    for file in ranges:
        rows = _read(file)
        first, last = (np.searchsorted(rows["part"], _hash(name), side) for side in ("left", "right"))
        found.append(rows[first:last][["hash", "first"]].astype(edits.REPEATED))
    return np.concatenate(found)


def _hash(part: str) -> np.uint64:
    return np.frombuffer(blake2b(part.encode(), digest_size=8).digest(), np.uint64)[0]


def _read(file: StoredFile) -> np.ndarray:
    return np.load(os.fspath(file), mmap_mode="r")


def _write_part(task: PartTask, directory: Path, rows: np.ndarray, counts: Counts) -> Part:
    path = directory / TABLE / f"{task.name}.npy"
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, rows)
    return Part(task.name, task.fingerprint, {TABLE: File.of(path, directory)}, counts)


def _count_part(task: PartTask, directory: Path, rules: Sequence[edits.Repeated]) -> Part:
    found, documents = [np.zeros(0, edits.COUNTED)], 0
    for batch in batches(task.inputs[0], ["text", "url"]):
        lines = edits.Lines.of(batch.column("text"))
        found += [edits.counted(batch, lines, rule, number) for number, rule in enumerate(rules)]
        documents += batch.num_rows
    rows = np.concatenate(found)
    rows = rows[np.argsort(rows["hash"], kind="stable")]
    begins = np.flatnonzero(_is_first(rows["hash"]))
    added = rows[begins]
    if len(begins):
        added["documents"] = np.add.reduceat(rows["documents"], begins)
    return _write_part(task, directory, added, {"documents": documents, "units": len(added)})


def _find_range(
    task: PartTask, directory: Path, names: Sequence[str], rules: Sequence[edits.Repeated]
) -> Part:
    number, ranges = map(int, task.name.split("-"))
    found, parts = [np.zeros(0, edits.COUNTED)], [np.zeros(0, np.uint64)]
    for name, file in zip(names, task.inputs, strict=True):
        rows = _read(file)
        here = slice(*(_edge(rows["hash"], edge, ranges) for edge in (number, number + 1)))
        found.append(rows[here])
        parts.append(np.full(len(found[-1]), _hash(name)))
    rows, part = np.concatenate(found), np.concatenate(parts)
    order = np.argsort(rows["hash"], kind="stable")  # within a hash in the order of the parts
    rows, part = rows[order], part[order]
    is_first = _is_first(rows["hash"])
    totals = np.bincount(np.cumsum(is_first) - 1, rows["documents"]) if len(rows) else np.zeros(0)
    least = np.array([rule.min_documents for rule in rules])[rows["rule"]]
    stays = np.array([rule.keep_first for rule in rules])[rows["rule"]] & is_first
    cut = totals[np.cumsum(is_first) - 1] >= least
    made = edits.columns(FOUND, part[cut], rows["hash"][cut], stays[cut])
    made = made[np.lexsort((made["hash"], made["part"]))]
    return _write_part(task, directory, made, {"units": len(made)})


def _is_first(hashes: np.ndarray) -> np.ndarray:
    """Whether each of ascending hashes differs from the one before."""
    return np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]


def _edge(hashes: np.ndarray, number: int, ranges: int) -> int:
    """Where range `number` of `ranges` equal ones starts in ascending hashes."""
    if number == ranges:
        return len(hashes)
    return int(np.searchsorted(hashes, np.uint64((number << 64) // ranges)))
