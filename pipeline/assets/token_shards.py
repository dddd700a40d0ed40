"""The token shards of each corpus."""

import dagster as dg

from pipeline.assets import check_results
from pipeline.assets.metadata import asset_key, materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.corpora import Corpus
from pipeline.steps.tokens import shards
from pipeline.store import keys


def token_shards_asset(corpus: Corpus) -> dg.AssetsDefinition:
    """The train and validation shards of one corpus, as Megatron `.bin` and `.idx` files."""

    @dg.asset(
        key=asset_key(keys.token_shards(corpus.name)),
        deps=[*map(asset_key, keys.judged(corpus.name)), keys.DEDUP, keys.TOKENIZER],
        group_name="token_shards",
        kinds={"memmap"},
        code_version=shards.VERSION,
        check_specs=check_results.specs(keys.token_shards(corpus.name)),
        description="The kept documents of this corpus as token ids, in memory-mapped Megatron shards. "
        "Held-out documents have their own shards.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        recipe = workshop.recipe
        version = shards.tokenize(workshop.store, workshop.engine, corpus.name, recipe.shards)
        counts = version.counts
        tokens = counts["train_tokens"] + counts["validation_tokens"]
        text_bytes = counts["train_text_bytes"] + counts["validation_text_bytes"]
        return materialized(
            version,
            {
                "train tokens": counts["train_tokens"],
                "validation tokens": counts["validation_tokens"],
                "train documents": counts["train_documents"],
                "validation documents": counts["validation_documents"],
                "bytes per token": round(text_bytes / max(tokens, 1), 3),
                "shards": counts["train_shards"] + counts["validation_shards"],
                "documents without text": counts["empty_documents"],
                "parts that the fast encoder got wrong": counts["encoder_fallbacks"],
                "MB/s": round(text_bytes / 1e6 / max(version.seconds, 1e-3), 1),
            },
            check_results.results(workshop, version),
        )

    return _asset
