"""The tokenizer: trained once on what is kept of all corpora, then frozen."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.assets.metadata import asset_key, materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.reports import tokenizer as report
from pipeline.reports.images import inline
from pipeline.stages import tokenizer as bpe
from pipeline.steps.tokens import tokenizer as tokenizer_flow
from pipeline.store import keys


class TokenizerConfig(dg.Config):
    """A new tokenizer invalidates every shard and checkpoint, so it must be asked for."""

    retrain: bool = Field(default=False, description="Train a new tokenizer on the corpora as they are now.")


def tokenizer_asset(recipe: Recipe) -> dg.AssetsDefinition:
    """Frozen: it is reused when the corpora change."""

    @dg.asset(
        key=keys.TOKENIZER,
        deps=[asset_key(key) for key in tokenizer_flow.input_keys(recipe.corpus_names)],
        group_name="mixture",
        kinds={"huggingface"},
        code_version=bpe.VERSION,
        description="Byte-level BPE in `tokenizer.json`. Frozen: it stays when the corpora change, until "
        "`retrain` asks for a new one.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources, config: TokenizerConfig) -> dg.MaterializeResult:
        recipe, store = workshop.recipe, workshop.store
        fraction = recipe.shards.validation_fraction
        version = tokenizer_flow.tokenizer(
            store, recipe.name, recipe.corpus_names, recipe.tokenizer, fraction, config.retrain
        )
        facts = {"entries": version.counts["entries"], "sha256": tokenizer_flow.frozen(version.path).sha256}
        if "documents" in version.counts:
            facts["documents sampled"] = version.counts["documents"]
        return materialized(
            version, {**facts, **_fit(report.report(store, recipe.corpus_names, version, fraction))}
        )

    return _asset


def _fit(found: Mapping[str, Any]) -> dict[str, Any]:
    if not found:
        return {}
    return {
        "fit": inline(
            found["png"], "bytes per token, and how much of the text the most frequent entries make"
        ),
        "fit by corpus": dg.MetadataValue.table([dg.TableRecord(row) for row in found["rows"]]),
        "entries in no held-out text": found["unused"],
        "longest entries": ", ".join(map(repr, found["longest"])),
    }
