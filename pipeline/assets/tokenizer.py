"""The tokenizer: trained once on the kept documents of all corpora, then frozen."""

from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.assets.asset import asset
from pipeline.assets.metadata import materialized, table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.steps.stage import Page
from pipeline.steps.tokens import tokenizer_fit
from pipeline.steps.tokens.tokenizer import FrozenTokenizer
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles


class TokenizerConfig(dg.Config):
    """A new tokenizer invalidates every shard and checkpoint, so it is trained only on request."""

    retrain: bool = Field(default=False, description="Train a new tokenizer on the corpora as they are now.")


def tokenizer_asset(recipe: Recipe, used: UsedRecipe) -> dg.AssetsDefinition:
    """The frozen tokenizer, which is reused when the corpora change."""

    (stage,) = FrozenTokenizer.all_of(recipe)

    @asset(
        stage.key,
        Page(
            "A byte-level BPE tokenizer, `tokenizer.json`. It is frozen: when the corpora change it stays "
            "the same, until a run sets `retrain`.",
            ("huggingface",),
            "all_corpora",
        ),
        # in a section also the recipe's own: else the tokenizer would be trained on conversations
        [*stage.inputs, *([used.asset(stage.key)] if recipe.section else [])],
        version=stage.version,
        used=used,
        section=recipe.section,
    )
    def _asset(workshop: PipelineResources, config: TokenizerConfig) -> dg.MaterializeResult:
        store = workshop.store
        (meant,) = FrozenTokenizer.all_of(workshop.recipe)
        version = meant.make(store, workshop.engine, config.retrain)
        found = TokenizerFiles.read(version.directory())
        facts: dict[str, Any] = {"entries": version.counts["entries"], "sha256": found.sha256}
        if "documents" in version.counts:
            facts["documents sampled"] = version.counts["documents"]
        if rows := tokenizer_fit.fit(store, meant, version):
            facts["fit by corpus"] = table(rows)
        return materialized(version, facts)

    return _asset
