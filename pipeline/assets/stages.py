"""The assets of the stages whose row has a page: made by its function, with the facts that it names."""

import dagster as dg

from pipeline.assets import check_results, stage_facts
from pipeline.assets.metadata import (
    asset_key,
    breakdown,
    chart,
    materialized,
    user_errors_as_failures,
    with_code_reference,
)
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.steps import stages
from pipeline.steps.stages import Page, Stage, assets_read


def stage_assets(recipe: Recipe, job: str) -> list[dg.AssetsDefinition]:
    """The assets of a recipe that are first made by this job."""
    return [
        _asset(recipe, stage, stage.page, key)
        for stage in stages.DATA_STAGES
        if stage.page and stage.page.job == job
        for key in stage.keys(recipe)
    ]


def _asset(recipe: Recipe, stage: Stage, page: Page, key: str) -> dg.AssetsDefinition:
    names = stage.names(key) or ()
    corpus = names[0] if names else ""
    shown = {"corpus": corpus, "source": recipe.corpus(corpus).source.kind if corpus else ""}

    @dg.asset(
        key=asset_key(key),
        deps={asset_key(read) for read in assets_read(recipe, key)},
        group_name=page.group.format(**shown),
        kinds={kind.format(**shown) for kind in page.kinds},
        code_version=page.version,
        check_specs=check_results.specs(key),
        description=page.description.format(**shown),
    )
    @user_errors_as_failures
    def _made(workshop: PipelineResources) -> dg.MaterializeResult:
        # A variant may lack a stage of the recipe, and then makes that of the recipe.
        meant = workshop.recipe if stage.wanted(workshop.recipe, *names) else recipe
        version = page.make(workshop.store, workshop.engine, *names, *stage.settings(meant, *names))
        counts = version.counts
        facts = {
            **{label: counts[name] for label, name in page.numbers.items()},
            **{label: breakdown(counts, *named) for label, named in page.breakdowns.items()},
            **stage_facts.more(stage.key, workshop, version),
            **(chart(version, *page.chart) if page.chart else {}),
        }
        return materialized(version, facts, check_results.results(workshop, version))

    return with_code_reference(_made, page.make)
