"""raw -> transformed: texts rewritten by the user's own code, where a recipe names some."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.plugins.calling import FAILURES_SCHEMA, failures_table
from pipeline.plugins.loading import PluginError
from pipeline.plugins.settings import Entry
from pipeline.plugins.transforms import Transform, of_corpus
from pipeline.recipe.recipe import Recipe
from pipeline.steps.corpus.user_code_stage import UserCodeStage
from pipeline.steps.stage import Page
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parts import BatchResult, BatchStep, Counts, tally, text_bytes
from pipeline.store.store import Store


@dataclass(frozen=True)
class Transformed(UserCodeStage):
    """Tables `documents` and `failures`, the documents set aside."""

    transforms: tuple[Transform, ...]

    name = "transformed"
    version = "transformed-2"
    page = Page(
        "The documents after the recipe's `transforms`. Documents on which a transform raised an exception "
        "are left out and listed in the table `failures`.",
        kinds=("python", "parquet"),
        numbers={"changed": "changed", "set aside": "failed"},
        breakdowns={
            "changed by transform": ("changed", "transform"),
            "set aside by transform": ("failed", "transform"),
        },
    )

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        transforms = tuple(of_corpus(recipe.transforms, corpus))
        return [cls(corpus, transforms)] if transforms else []

    @property
    def documents(self) -> Key:
        return keys.raw(self.corpus)

    @property
    def entries(self) -> Sequence[Entry]:
        return [transform.entry for transform in self.transforms]

    def settings(self, store: Store) -> Any:
        return {"transforms": [transform.identity for transform in self.transforms]}

    def step(self, store: Store) -> BatchStep:
        return BatchStep(
            partial(_transform, transforms=self.transforms),
            {"documents": DOCUMENT_SCHEMA, "failures": FAILURES_SCHEMA},
            ("documents", "text_bytes", "changed", "failed"),
        )

    def make(self, store: Store, engine: Engine) -> Version:
        """Raises PluginError also when the code fails on every document."""
        version = super().make(store, engine)
        if not version.counts["documents"]:
            raise PluginError(
                f"the transforms failed on every document of corpus {self.corpus!r}: correct the code and "
                "raise its `version`"
            )
        return version


def text_after_transforms(recipe: Recipe, corpus: str) -> Key:
    """The key of the documents of a corpus after the transforms, if it has any."""
    return keys.transformed(corpus) if recipe.is_transformed(corpus) else keys.raw(corpus)


def _transform(batch: pa.RecordBatch, transforms: Sequence[Transform]) -> BatchResult:
    documents, failures = batch, []
    counts: Counts = {}
    for transform in transforms:
        before = documents
        documents, failed = transform.apply(documents)
        failures += failed
        counts[f"changed/{transform.entry.name}"] = _changed(before, documents)
    table = failures_table(failures)
    counts |= {
        "documents": documents.num_rows,
        "text_bytes": text_bytes(documents),
        "changed": _changed(batch, documents),
        "failed": len(failures),
        **tally(table.column("name"), "failed"),
    }
    return {"documents": documents.cast(DOCUMENT_SCHEMA), "failures": table}, counts


def _changed(before: pa.RecordBatch, after: pa.RecordBatch) -> int:
    """How many of the documents that are left have another text."""
    if after.num_rows < before.num_rows:
        before = before.filter(pc.is_in(before.column("id"), value_set=after.column("id")))
    return pc.sum(pc.not_equal(before.column("text"), after.column("text"))).as_py() or 0
