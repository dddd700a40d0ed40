"""What the UI shows of some stages beside the counts that their rows name."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from pipeline.assets.metadata import breakdown_table, table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.reports import dedup as report
from pipeline.reports.images import inline
from pipeline.reports.text_shares import KEPT, text_shares
from pipeline.steps.corpus.quality import Rejection, reasons
from pipeline.steps.corpus.quality_model import FACTS
from pipeline.steps.dedup.limits import by_corpus
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.store import Store


def more(stage: str, workshop: PipelineResources, version: Version) -> dict[str, Any]:
    """The facts of a version of the stage whose row has this key."""
    return MORE[stage](workshop, version) if stage in MORE else {}


def _quality(workshop: PipelineResources, version: Version) -> dict[str, Any]:
    found, corpus = reasons(version), keys.corpus(version.key)
    kept_text = text_shares(workshop.store, corpus, version.key).get(KEPT, 0)
    facts = {
        "share kept": round(found[0].share, 4),
        "share of text kept": round(kept_text, 4),
        "verdicts by rule": _reasons_table(workshop.store, {corpus: found}),
        "documents at random": f"python -m pipeline inspect RULE --corpus {corpus}",  # or `kept`
    }
    if workshop.recipe.rules(corpus).quality.detects:
        facts["languages"] = breakdown_table(version.counts, "languages", "language")
    return facts


def _dedup(workshop: PipelineResources, version: Version) -> dict[str, Any]:
    recipe, store = workshop.recipe, workshop.store
    verdicts = {name: reasons(store.current(keys.quality(name))) for name in recipe.corpus_names}
    return {
        "decisions by reason": _decisions_table(store, version),
        "quality's verdicts": _reasons_table(store, verdicts),
        **_pictures(store, version, recipe.corpus_names),
    }


def _token_shards(workshop: PipelineResources, version: Version) -> dict[str, Any]:
    counts = version.counts
    tokens = counts["train_tokens"] + counts["validation_tokens"]
    text_bytes = counts["train_text_bytes"] + counts["validation_text_bytes"]
    return {
        "bytes per token": round(text_bytes / max(tokens, 1), 3),
        "shards": counts["train_shards"] + counts["validation_shards"],
        "MB/s": round(text_bytes / 1e6 / max(version.seconds, 1e-3), 1),
    }


MORE: dict[str, Callable[[PipelineResources, Version], dict[str, Any]]] = {
    keys.quality("{corpus}"): _quality,
    keys.contamination("{corpus}"): lambda workshop, _: (
        {"action": searched.action} if (searched := workshop.recipe.decontamination) else {}
    ),
    keys.QUALITY_MODEL: lambda _, version: {"held out": json.loads(version.only(FACTS).read_text())},
    keys.DEDUP: _dedup,
    keys.token_shards("{corpus}"): _token_shards,
}


def _decisions_table(store: Store, version: Version) -> dg.TableMetadataValue:
    """Kept and removed documents by corpus and reason, and their share of the text that quality kept."""
    return table(
        {
            "corpus": name,
            "decision": reason or "kept",
            "documents": counts[f"removed/{reason}" if reason else "kept"],
            "share of text": round(share, 4),
        }
        for name, counts in by_corpus(version).items()
        for reason, share in sorted(text_shares(store, name, version.key).items())
    )


def _reasons_table(store: Store, found: Mapping[str, Sequence[Rejection]]) -> dg.TableMetadataValue:
    """Kept and rejected documents by corpus and rule, with example ids. `python -m pipeline inspect RULE`
    shows the documents.
    """
    return table(
        {
            "corpus": name,
            "verdict": reason.rule or "kept",
            "documents": reason.documents,
            "share": round(reason.share, 4),
            "share of text": round(text.get(reason.rule or KEPT, 0), 4),
            "examples": ", ".join(reason.examples),
        }
        for name, reasons in found.items()
        for text in [text_shares(store, name, keys.quality(name))]
        for reason in reasons
    )


def _pictures(store: Store, version: Version, corpora: list[str]) -> dict[str, Any]:
    found = report.report(store, version, corpora)
    facts = {"duplicates": inline(found["png"], "near duplicates by similarity, duplicates between corpora")}
    return facts | ({"largest clusters": table(found["largest"])} if found["largest"] else {})
