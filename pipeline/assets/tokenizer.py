"""The tokenizer: trained once on the kept documents of all corpora, then frozen."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.assets.asset import asset
from pipeline.assets.metadata import materialized, table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.reports import tokenizer as report
from pipeline.reports.images import inline
from pipeline.stages import tokenizer as bpe
from pipeline.steps.tokens import tokenizer
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
            store, recipe.name, list(recipe.weights), recipe.tokenizer, fraction, config.retrain
        )
        facts = {"entries": version.counts["entries"], "sha256": tokenizer.frozen(version.directory()).sha256}
        if "documents" in version.counts:
            facts["documents sampled"] = version.counts["documents"]
        fit = _fit(report.report(store, list(recipe.weights), version, fraction))
        return materialized(version, {**facts, **fit})

    return _asset


def _fit(measured: Mapping[str, Any]) -> dict[str, Any]:
    if not measured:
        return {}
    return {
        "fit": inline(measured["png"], "the share of the text that the most frequent entries cover"),
        "fit by corpus": table(measured["rows"]),
        "entries in no held-out text": measured["unused"],
        "longest entries": ", ".join(map(repr, measured["longest"])),
    }
