"""Searches for a better mixture with small runs, on request."""

import dagster as dg

from pipeline.assets.asset import asset
from pipeline.assets.metadata import materialized, table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.reports import mixture_search
from pipeline.steps.mixture_search import search
from pipeline.steps.stage import Page
from pipeline.store import keys


def mixture_search_assets(recipe: Recipe, used: UsedRecipe) -> list[dg.AssetsDefinition]:
    """The search, if the recipe names one. It is no part of `pretrain`: a person decides on its proposal."""
    if recipe.mixture.search is None:
        return []

    @asset(
        keys.MIXTURE_SEARCH,
        Page(
            "Small runs over random mixtures, a law fitted to them, and the mixture with the lowest loss "
            "under it. The job `search_mixture` makes it; nothing else depends on it.",
            ("pytorch",),
            "mixture",
        ),
        [keys.TOKENIZER, *map(keys.token_shards, recipe.corpus_names)],
        version=search.VERSION,
        used=used,
        pool=used.pool,
    )
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        store, recipe = workshop.store, workshop.recipe
        workshop.release_data()
        version = search.search(store, recipe)
        result = search.result(store, recipe, version)
        facts = {
            "proposal": table(mixture_search.rows(result)),
            "law": mixture_search.verdict(result),
            "for the recipe": dg.MetadataValue.md(f"```yaml\n{mixture_search.as_recipe(result)}\n```"),
        }
        return materialized(version, facts)

    return [_asset]
