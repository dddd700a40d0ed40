"""The scrubbed text of some corpora -> quality_model: a classifier that filters read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from pipeline.plugins.settings import OWN_MODEL
from pipeline.recipe.recipe import Recipe
from pipeline.stages import quality_model
from pipeline.stages.held_out import share_of
from pipeline.stages.quality_model import QualityModelParams
from pipeline.steps.stage import DataStage, Page
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import all_batches
from pipeline.store.store import Store
from pipeline.store.work import Work

FACTS = "facts.json"
DOCUMENTS = 20_000  # as many of each corpus, chosen by id
LEAST_DOCUMENTS = 10  # of each side, to be held out


@dataclass(frozen=True)
class QualityModel(DataStage):
    """The classifier in fastText's format, and FACTS."""

    params: QualityModelParams

    name = keys.QUALITY_MODEL
    version = "quality-model-1"
    page = Page(
        "A classifier of text, and what it does with text that it was not trained on.",
        kinds=("fasttext",),
        group="all_corpora",
    )

    @classmethod
    def all_of(cls, recipe: Recipe) -> Sequence[Self]:
        return [cls(recipe.quality_model)] if recipe.quality_model else []

    @property
    def inputs(self) -> Sequence[Key]:
        return list(map(keys.scrubbed, self.params.positive + self.params.negative))

    def work(self, store: Store) -> Work:
        return Work(self.key, self.version, self.params, store.data_versions(self.inputs))

    def make(self, store: Store, engine: Engine) -> Version:
        """Raises PipelineError for few documents."""
        params = self.params
        with store.making(self.work(store)) as draft:
            if isinstance(draft, Version):
                return draft
            texts, corpus, share = self._sample(store)
            positive, names = corpus < len(params.positive), params.positive + params.negative
            if np.bincount(positive[share < quality_model.HELD_OUT], minlength=2).min() < LEAST_DOCUMENTS:
                raise PipelineError("quality_model: too few documents to hold some out: name larger corpora")
            model, facts = quality_model.train(
                texts, corpus=corpus, positive=positive, share=share, names=names
            )
            written: dict[str, str | bytes] = {OWN_MODEL: model, FACTS: json.dumps(facts)}
            files = {name: draft.write(name, content) for name, content in written.items()}
            return draft.publish([Part(OWN_MODEL, draft.work.fingerprint, files, {"documents": len(share)})])

    def _sample(self, store: Store) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """The text of each document that is chosen, the number of its corpus, and a number from 0 to 1 that
        decides whether it is held out.
        """
        texts, corpora, shares = [], [], []
        for number, scrubbed in enumerate(map(store.current, self.inputs)):
            wanted = DOCUMENTS / len(self.inputs) / scrubbed.counts["documents"]
            for batch in all_batches(scrubbed, "documents", ["id", "text"]):
                chosen = batch.filter(pa.array(share_of(batch.column("id"), "quality model") < wanted))
                texts.append(quality_model.windows(chosen.column("text")))
                corpora.append(np.full(chosen.num_rows, number))
                shares.append(share_of(chosen.column("id"), "quality split"))
        return pa.concat_arrays(texts), np.concatenate(corpora), np.concatenate(shares)
