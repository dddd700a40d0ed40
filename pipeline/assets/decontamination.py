"""Evaluation sets, and the documents of each corpus that quote them."""

import dagster as dg

from pipeline.assets.metadata import asset_key, breakdown, materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.stages import decontamination
from pipeline.steps.corpus import decontamination as decontamination_flow
from pipeline.store import keys


def decontamination_assets(recipe: Recipe) -> list[dg.AssetsDefinition]:
    """None unless the recipe names evaluation sets."""
    if recipe.decontamination is None:
        return []
    return [
        _ngrams(recipe.decontamination),
        *(_contamination(recipe.decontamination, name) for name in recipe.corpus_names),
    ]


def _ngrams(params: decontamination_flow.Decontamination) -> dg.AssetsDefinition:
    @dg.asset(
        key=keys.EVALUATION_NGRAMS,
        group_name="mixture",
        kinds={"numba"},
        code_version=decontamination.VERSION,
        description="The word n-grams of the evaluation sets, to look for in the corpora.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        recipe = workshop.recipe
        version = decontamination_flow.index(
            workshop.store,
            workshop.engine,
            recipe.decontamination or params,
            recipe.scrub,
            recipe.transform_chains,
        )
        return materialized(
            version,
            {
                "n-grams": version.counts["ngrams"],
                "documents by set": breakdown(version.counts, "documents", "set"),
            },
        )

    return _asset


def _contamination(params: decontamination_flow.Decontamination, corpus: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(keys.contamination(corpus)),
        deps=[keys.EVALUATION_NGRAMS, *map(asset_key, keys.judged(corpus))],
        group_name=corpus,
        kinds={"numba", "parquet"},
        code_version=decontamination.VERSION,
        description="Documents that share words in a row with an evaluation set: which set, which words, "
        "where.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        asked = workshop.recipe.decontamination or params
        version = decontamination_flow.find(workshop.store, workshop.engine, corpus, asked)
        found = {"contaminated": version.counts[decontamination_flow.REASON], "action": asked.action}
        return materialized(
            version,
            {**found, "contaminated by set": breakdown(version.counts, decontamination_flow.REASON, "set")},
        )

    return _asset
