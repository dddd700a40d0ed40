"""The tokenizer: trained once on the kept documents of all corpora, then frozen."""

from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.assets.asset import asset
from pipeline.assets.metadata import materialized, table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.stages import tokenizer as bpe
from pipeline.steps.tokens import tokenizer, tokenizer_fit
from pipeline.store import keys


class TokenizerConfig(dg.Config):
    """A new tokenizer invalidates every shard and checkpoint, so it is trained only on request."""

    retrain: bool = Field(default=False, description="Train a new tokenizer on the corpora as they are now.")


def tokenizer_asset(recipe: Recipe) -> dg.AssetsDefinition:
    """The frozen tokenizer, which is reused when the corpora change."""

    @asset(
        keys.TOKENIZER,
        tokenizer.input_keys(list(recipe.weights)),
        bpe.VERSION,
        "A byte-level BPE tokenizer, `tokenizer.json`. It is frozen: when the corpora change it stays the "
        "same, until a run sets `retrain`.",
        kinds=["huggingface"],
        group="all_corpora",
        section=recipe.section,
    )
    def _asset(workshop: PipelineResources, config: TokenizerConfig) -> dg.MaterializeResult:
        recipe, store = workshop.recipe, workshop.store
        fraction = recipe.shards.validation_fraction
        version = tokenizer.tokenizer(
            store,
            workshop.engine,
            recipe.name,
            list(recipe.weights),
            recipe.tokenizer,
            fraction,
            config.retrain,
        )
        frozen = tokenizer.frozen(version.directory())
        facts: dict[str, Any] = {"entries": version.counts["entries"], "sha256": frozen.sha256}
        if "documents" in version.counts:
            facts["documents sampled"] = version.counts["documents"]
        if rows := tokenizer_fit.fit(store, list(recipe.weights), version, fraction):
            facts["fit by corpus"] = table(rows)
        return materialized(version, facts)

    return _asset
