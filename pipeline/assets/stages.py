"""The assets of the stages that have a page, with the facts that it names. Also the sources of the corpora:
once one has changed, the UI shows the corpus as out of date.
"""

from collections.abc import Callable, Iterable
from typing import Any

import dagster as dg

from pipeline.assets.asset import asset, check_results, given, user_errors_as_failures
from pipeline.assets.metadata import breakdown_table, materialized, table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.sections import Corpus
from pipeline.reports import dedup
from pipeline.reports.images import inline
from pipeline.sources.formats.unlearnable import UNREAD
from pipeline.steps import stages
from pipeline.steps.corpus.decontamination import Contamination
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.corpus.quality import Quality, reasons
from pipeline.steps.corpus.quality_model import FACTS, QualityModel
from pipeline.steps.dedup.dedup import Dedup
from pipeline.steps.lineage import source_state
from pipeline.steps.stage import DataStage, Page
from pipeline.steps.tokens.shards import TokenShards
from pipeline.store import keys
from pipeline.store.keys import Key
from pipeline.store.manifest import Version, breakdown
from trainer.system import terminal
from trainer.system.durable import read_json


def stage_assets(recipe: Recipe, job: str, used: UsedRecipe) -> list[dg.AssetsDefinition]:
    """The assets of a recipe that are first made by this job."""
    found = stages.of_recipe(recipe)
    return [
        _asset(recipe, stage, page, stages.assets_before(found, stage.key), used)
        for kind in stages.all_stages()
        if (page := kind.page) and page.job == job
        for stage in kind.all_of(recipe)
    ]


def _asset(
    recipe: Recipe, stage: DataStage, page: Page, made_from: Iterable[Key], used: UsedRecipe
) -> dg.AssetsDefinition:
    @asset(
        stage.key,
        page.naming(stage.names),
        made_from,
        version=stage.version,
        used=used,
        section=recipe.section,
        made_by=type(stage).make,
    )
    def _made(workshop: PipelineResources) -> dg.MaterializeResult:
        # A variant may lack a stage of the recipe, and then makes that of the recipe.
        meant = workshop.stages.get(stage.key, stage)
        version = meant.make(workshop.store, workshop.engine)
        counts = version.counts
        facts = {
            **{label: counts[name] for label, name in page.numbers.items()},
            **{label: breakdown_table(counts, *named) for label, named in page.breakdowns.items()},
            **more_facts(type(stage), workshop, version),
        }
        return materialized(version, facts, check_results(workshop, version))

    return _made


def source_asset(corpus: Corpus, used: UsedRecipe, section: str = "") -> dg.SourceAsset:
    """Observed at the start of each run, and by the sensor."""

    @dg.observable_source_asset(
        key=used.asset(keys.source(corpus.name), section),
        group_name=used.name(section or corpus.name),
        description=f"Where the documents of `{corpus.name}` come from. The version changes when the "
        "documents may have changed.",
    )
    @user_errors_as_failures
    @given(used, section)
    def _source(workshop: PipelineResources) -> dg.DataVersion:
        with terminal.doing(f"checking whether the source of {corpus.name} has changed"):
            state = source_state.observe(workshop.store, workshop.recipe, corpus.name)
        return dg.DataVersion(state.version)

    return _source


def more_facts(kind: type[DataStage], workshop: PipelineResources, version: Version) -> dict[str, Any]:
    """What the UI shows of a version of this kind of stage beside the counts that its page names."""
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
