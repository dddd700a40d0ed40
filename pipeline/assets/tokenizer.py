"""The tokenizer: trained once on what is kept of all corpora, then frozen."""

import tempfile
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.assets.corpora import corpus_key
from pipeline.assets.outcome import explained, materialized
from pipeline.assets.resources import Workshop
from pipeline.flows import tokenizer as tokenizer_flow
from pipeline.flows.tokenizer_usage import Usage, longest_tokens, usage
from pipeline.recipe import Recipe
from pipeline.reports import tokenizer as report
from pipeline.reports.images import inline_png
from pipeline.stages import tokenizer as bpe
from pipeline.store import Version

LONGEST = 20


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
        recipe, store = workshop.recipe, workshop.store
        fraction = recipe.shards.validation_fraction
        version = tokenizer_flow.tokenizer(store, recipe.name, recipe.corpus_names, recipe.tokenizer, fraction, config.retrain)
        facts = {"entries": version.counts["entries"], "sha256": tokenizer_flow.frozen(version.path).sha256}
        if "documents" in version.counts:
            facts["documents sampled"] = version.counts["documents"]
        return materialized(version, {**facts, **_fit(version, usage(store, recipe.corpus_names, version, fraction))})

    return _asset


def _fit(version: Version, usages: list[Usage]) -> dict[str, Any]:
    rows = report.rows(usages)
    if not rows:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.png"
        report.draw(usages, path)
        picture = inline_png(path, "bytes per token, and how much of the text the most frequent entries make")
    longest = ", ".join(repr(token) for token in longest_tokens(version, LONGEST))
    return {
        "fit": picture,
        "fit by corpus": dg.MetadataValue.table([dg.TableRecord(row) for row in rows]),
        "entries in no held-out text": report.unused(usages),
        "longest entries": longest,
    }
