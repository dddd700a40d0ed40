"""scrubbed -> languages: the language of each document, detected only if the recipe names some."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from pipeline.recipe.recipe import Recipe
from pipeline.stages import fasttext, language
from pipeline.steps.corpus.filters import content
from pipeline.steps.stage import BatchStage
from pipeline.store import keys
from pipeline.store.parts import BatchResult, BatchStep
from pipeline.store.store import Store


@dataclass(frozen=True)
class Languages(BatchStage):
    """Table `languages`, by the fastText model in a file or, without one, by py3langid."""

    model: Path | None

    name = "languages"
    version = language.VERSION
    made_within = keys.quality(keys.ANY_CORPUS)

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        rules = recipe.rules(corpus).quality
        return [cls(corpus, rules.language_file)] if rules.detects else []

    @property
    def code_version(self) -> str:
        return fasttext.VERSION if self.model else self.version

    def settings(self, store: Store) -> Any:
        return {"model": content(store, self.model)} if self.model else {}

    def step(self, store: Store) -> BatchStep:
        schemas = {"languages": language.LANGUAGES_SCHEMA}
        return BatchStep(partial(detect, model=self.model), schemas, columns=["id", "text"])


def detect(documents: pa.RecordBatch, model: Path | None) -> BatchResult:
    """The language of each document."""
    return {"languages": language.detect(documents, model)}, {"documents": documents.num_rows}
