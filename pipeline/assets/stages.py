"""The assets of the stages that have a page, with the facts that it names. Also the sources of the corpora:
once one has changed, the UI shows the corpus as out of date.
"""

from collections.abc import Iterable

import dagster as dg

from pipeline.assets import stage_facts
from pipeline.assets.asset import asset, check_results, given, user_errors_as_failures
from pipeline.assets.metadata import breakdown_table, materialized
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.sections import Corpus
from pipeline.steps import stages
from pipeline.steps.lineage import source_state
from pipeline.steps.stage import DataStage, Page
from pipeline.store import keys
from pipeline.store.keys import Key
from trainer.system import terminal


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
            **stage_facts.of_version(type(stage), workshop, version),
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
