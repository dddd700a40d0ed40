"""What the UI shows of some stages beside the counts that their pages name."""

from collections.abc import Callable
from typing import Any

import dagster as dg

from pipeline.assets.metadata import breakdown_table, table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.reports import dedup
from pipeline.reports.images import inline
from pipeline.sources.formats.unlearnable import UNREAD
from pipeline.steps.corpus.decontamination import Contamination
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.corpus.quality import Quality, reasons
from pipeline.steps.corpus.quality_model import FACTS, QualityModel
from pipeline.steps.dedup.dedup import Dedup
from pipeline.steps.stage import DataStage
from pipeline.steps.tokens.shards import TokenShards
from pipeline.store.manifest import Version, breakdown
from trainer.system.durable import read_json


def of_version(kind: type[DataStage], workshop: PipelineResources, version: Version) -> dict[str, Any]:
    """What the UI shows of a version of this kind of stage, beside its counts."""
    facts = MORE.get(kind)
    return facts(workshop, version) if facts else {}


def _quality(workshop: PipelineResources, version: Version) -> dict[str, Any]:
    found, corpus = reasons(version), version.key.corpus
    facts = {
        "share kept": round(found[0].share, 4),
        "share of bytes kept": round(found[0].share_of_bytes, 4),
        "verdicts by rule": table(
            {
                "verdict": reason.rule or "kept",
                "documents": reason.documents,
                "share": round(reason.share, 4),
                "share of bytes": round(reason.share_of_bytes, 4),
            }
            for reason in found
        ),
        "documents at random": workshop.used.meant(
            f"python -m pipeline inspect documents RULE --corpus {corpus}"  # or `kept`
        ),
    }
    if workshop.recipe.rules(corpus).quality.detects:
        facts["languages"] = breakdown_table(version.counts, "languages", "language")
    return facts


def _dedup(workshop: PipelineResources, version: Version) -> dict[str, Any]:
    found = dedup.report(workshop.store, version, workshop.recipe.corpus_names)
    drawing = inline(found["png"], "near duplicates by similarity, duplicates between corpora")
    largest = {"largest clusters": table(found["largest"])} if found["largest"] else {}
    return {"duplicates": dg.MetadataValue.md(drawing), **largest}


def _token_shards(workshop: PipelineResources, version: Version) -> dict[str, Any]:
    counts = version.counts
    tokens = counts["train_tokens"] + counts["validation_tokens"]
    text_bytes = counts["train_text_bytes"] + counts["validation_text_bytes"]
    return {
        "bytes per token": round(text_bytes / max(tokens, 1), 3),
        "shards": counts["train_shards"] + counts["validation_shards"],
        "MB/s": round(text_bytes / 1e6 / max(version.seconds, 1e-3), 1),
    }


MORE: dict[type[DataStage], Callable[[PipelineResources, Version], dict[str, Any]]] = {
    Raw: lambda _, version: (
        {"keys of messages that are not read": breakdown_table(version.counts, UNREAD, "key")}
        if breakdown(version.counts, UNREAD)
        else {}
    ),
    Quality: _quality,
    Contamination: lambda workshop, _: (
        {"action": searched.action} if (searched := workshop.recipe.decontamination) else {}
    ),
    QualityModel: lambda _, version: {"held out": read_json(version.only(FACTS))},
    Dedup: _dedup,
    TokenShards: _token_shards,
}
