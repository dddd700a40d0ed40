"""The tokenizer: trained once on what is kept of all corpora, then frozen."""

import dagster as dg
from pydantic import Field

from pipeline.assets.corpora import corpus_key
from pipeline.assets.outcome import explained, materialized
from pipeline.assets.resources import Workshop
from pipeline.flows import tokenizer as tokenizer_flow
from pipeline.recipe import Recipe
from pipeline.stages import tokenizer as bpe


class TokenizerConfig(dg.Config):
    """A new tokenizer invalidates every shard and checkpoint, so it must be asked for."""

    retrain: bool = Field(default=False, description="Train a new tokenizer on the corpora as they are now.")


def tokenizer_asset(recipe: Recipe) -> dg.AssetsDefinition:
    """Frozen: it is reused when the corpora change."""

    @dg.asset(
        key="tokenizer",
        deps=["dedup", *(corpus_key(name, stage) for name in recipe.corpus_names for stage in ("scrubbed", "quality"))],
        group_name="mixture",
        kinds={"huggingface"},
        code_version=bpe.VERSION,
        description="Byte-level BPE in `tokenizer.json`. Frozen: it stays when the corpora change, until `retrain` asks for a new one.",
    )
    @explained
    def _asset(workshop: Workshop, config: TokenizerConfig) -> dg.MaterializeResult:
        recipe = workshop.recipe
        version = tokenizer_flow.tokenizer(
            workshop.store, recipe.name, recipe.corpus_names, recipe.tokenizer, recipe.shards.validation_fraction, config.retrain
        )
        return materialized(version, {"entries": version.counts["entries"], "documents sampled": version.counts["documents"]})

    return _asset
