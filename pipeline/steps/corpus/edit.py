"""raw or transformed -> edited: lines cut out of the texts, and a table of what was cut and where it was."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from pipeline.recipe.recipe import Recipe
from pipeline.stages import edits
from pipeline.steps.corpus import repeated_units
from pipeline.steps.corpus.repeated_units import RepeatedUnits
from pipeline.steps.corpus.transform import text_after_transforms
from pipeline.steps.stage import CorpusStage, Page
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import Counts, PartTask, add, derive, part_tasks, tally, text_bytes
from pipeline.store.store import Store
from pipeline.store.work import Work

SCHEMAS = {"documents": DOCUMENT_SCHEMA, "cuts": edits.CUTS_SCHEMA}
COUNTED = ("documents", "text_bytes", "changed", "cuts", "bytes_cut")


@dataclass(frozen=True)
class Edited(CorpusStage):
    """Tables `documents` and `cuts`. The field `documents` is the key of what is edited."""

    documents: Key
    params: edits.EditParams

    name = "edited"
    version = edits.VERSION
    page = Page(
        "The documents without the lines that the recipe's `edits` cut. The table `cuts` keeps each with its "
        "place and rule, and `python -m pipeline restore` puts them back.",
        kinds=("parquet",),
        numbers={"changed": "changed", "cuts": "cuts", "bytes cut": "bytes_cut"},
        breakdowns={"cuts by rule": ("cuts", "rule")},
    )

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        params = recipe.rules(corpus).edits
        return [cls(corpus, text_after_transforms(recipe, corpus), params)] if params.cut else []

    @property
    def _units(self) -> RepeatedUnits:
        return RepeatedUnits(self.corpus, self.documents, self.params.repeated)

    @property
    def inputs(self) -> Sequence[Key]:
        return [self.documents, *([self._units.key] if self.params.repeated else [])]

    def work(self, store: Store) -> Work:
        return Work(self.key, self.version, self.params, store.data_versions(self.inputs))

    def make(self, store: Store, engine: Engine) -> Version:
        repeated = self._units.make(store, engine) if self.params.repeated else None
        work = self.work(store)
        tasks = part_tasks(work, [(store.current(self.documents), "documents")])
        if repeated:
            tasks = [_with(task, work, repeated) for task in tasks]
        return derive(store, engine, work, tasks, partial(_edit_part, params=self.params))


def text_after_edits(recipe: Recipe, corpus: str) -> Key:
    """The key of the documents of a corpus after the transforms and the edits, if it has any."""
    return keys.edited(corpus) if recipe.is_edited(corpus) else text_after_transforms(recipe, corpus)


def _with(task: PartTask, work: Work, repeated: Version) -> PartTask:
    """The task with one more input: what is repeated in the corpus."""
    files = tuple(repeated.files(repeated_units.TABLE))
    fingerprint = work.part_fingerprint([task.fingerprint, repeated.data_version])
    return PartTask(task.name, fingerprint, (*task.inputs, *files), task.bytes)


def _edit_part(task: PartTask, directory: Path, params: edits.EditParams) -> Part:
    documents, *ranges = task.inputs
    repeated = repeated_units.of_part(task.name, ranges)
    seen = np.zeros(len(repeated), np.bool_)
    counts: Counts = dict.fromkeys(COUNTED, 0)
    with PartWriter(directory, task.name, SCHEMAS) as writer:
        for batch in batches(documents):
            edited, cuts = edits.edit(batch, params, repeated, seen)
            writer.write("documents", edited.cast(DOCUMENT_SCHEMA))
            writer.write("cuts", cuts)
            add(counts, _counted(edited, cuts))
    return Part(task.name, task.fingerprint, writer.files, counts)


def _counted(edited: pa.RecordBatch, cuts: pa.RecordBatch) -> Counts:
    return {
        "documents": edited.num_rows,
        "text_bytes": text_bytes(edited),
        "changed": len(cuts.column("id").unique()),
        "cuts": cuts.num_rows,
        "bytes_cut": text_bytes(cuts),
        **tally(cuts.column("rule"), "cuts"),
    }


def texts_before(version: Version) -> Iterator[tuple[str, str]]:
    """The id and the text before the edits of each document, part by part."""
    for part in version.parts:
        cuts: dict[str, list[tuple[int, str]]] = {}
        for batch in batches(version.file(part, "cuts"), ["id", "start", "text"]):
            for row in batch.to_pylist():
                cuts.setdefault(row["id"], []).append((row["start"], row["text"]))
        for batch in batches(version.file(part, "documents"), ["id", "text"]):
            for row in batch.to_pylist():
                yield row["id"], edits.restored(row["text"], cuts.get(row["id"], []))
