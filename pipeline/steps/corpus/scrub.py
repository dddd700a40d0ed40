"""raw, transformed or edited -> scrubbed: personal data replaced, and a table of where it was in the text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import pyarrow as pa

from pipeline.recipe.recipe import Recipe
from pipeline.stages import pii
from pipeline.steps import compile_ahead
from pipeline.steps.corpus.edit import text_after_edits
from pipeline.steps.stage import BatchStage, Page
from pipeline.store.engines.local import Engine
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parts import BatchResult, BatchStep, tally, text_bytes
from pipeline.store.store import Store


@dataclass(frozen=True)
class Scrubbed(BatchStage):
    """Tables `documents` and `spans`. `text`: the key of what is scrubbed."""

    text: Key
    params: pii.PiiParams

    name = "scrubbed"
    version = pii.VERSION
    page = Page(
        "The documents with personal data replaced by typed placeholders, in text, URL and metadata. The "
        "table `spans` records the place of each replacement in the text, never the value.",
        numbers={
            "spans": "spans",
            "documents with PII": "documents_with_pii",
            "replaced in URLs": "spans_in_url",
            "replaced in metadata": "spans_in_metadata",
        },
        breakdowns={"PII by kind": ("spans", "kind")},
    )

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus, text_after_edits(recipe, corpus), recipe.rules(corpus).scrub)]

    @property
    def documents(self) -> Key:
        return self.text

    def settings(self, store: Store) -> pii.PiiParams:
        return self.params

    def step(self, store: Store) -> BatchStep:
        return scrubbing(self.params)

    def make(self, store: Store, engine: Engine) -> Version:
        compile_ahead.wait_for_scrubbing()
        return super().make(store, engine)


def scrubbing(params: pii.PiiParams) -> BatchStep:
    """Documents in; scrubbed `documents`, URL and metadata too, and the `spans` of their text out."""
    return BatchStep(
        partial(_scrub, params=params),
        {"documents": DOCUMENT_SCHEMA, "spans": pii.SPANS_SCHEMA},
        ("documents", "text_bytes", "documents_with_pii", "spans", "spans_in_url", "spans_in_metadata"),
    )


def _scrub(batch: pa.RecordBatch, params: pii.PiiParams) -> BatchResult:
    documents, spans = pii.scrub(batch, params)
    documents, elsewhere = pii.scrub_fields(documents, params)
    ids = spans.column("id")
    counts = {
        "documents": documents.num_rows,
        "text_bytes": text_bytes(documents),
        "documents_with_pii": len(ids.unique()),
        "spans": len(ids),
        **{f"spans_in_{column}": count for column, count in elsewhere.items()},
    }
    return {"documents": documents, "spans": spans}, counts | tally(spans.column("kind"), "spans")
