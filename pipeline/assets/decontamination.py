"""The n-grams of the evaluation sets, and the documents of each corpus that quote them."""

import dagster as dg

from pipeline.assets.metadata import asset_key, breakdown, materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.stages import decontamination
from pipeline.steps.corpus import decontamination as decontamination_step
from pipeline.store import keys


def decontamination_assets(recipe: Recipe) -> list[dg.AssetsDefinition]:
    """One asset for the n-grams and one for each corpus; none if the recipe names no evaluation sets."""
    if recipe.decontamination is None:
        return []
    return [
        _ngrams(recipe.decontamination),
        *(_contamination(recipe.decontamination, name) for name in recipe.corpus_names),
    ]


def _ngrams(params: decontamination_step.Decontamination) -> dg.AssetsDefinition:
    @dg.asset(
        key=keys.EVALUATION_NGRAMS,
        group_name="mixture",
        kinds={"numba"},
        code_version=decontamination.VERSION,
        description="The word n-grams of the evaluation sets, which are then searched for in the corpora.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        recipe = workshop.recipe
        version = decontamination_step.index(
            workshop.store,
            workshop.engine,
            recipe.decontamination or params,
            recipe.scrub,
            recipe.transform_chains,
        )
        counts = version.counts
        facts = {"n-grams": counts["ngrams"], "documents by set": breakdown(counts, "documents", "set")}
        return materialized(version, facts)

    return _asset


def _contamination(params: decontamination_step.Decontamination, corpus: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(keys.contamination(corpus)),
        deps=[keys.EVALUATION_NGRAMS, *map(asset_key, keys.judged(corpus))],
        group_name=corpus,
        kinds={"numba", "parquet"},
        code_version=decontamination.VERSION,
        description="The documents that share a run of words with an evaluation set: which set, which words "
        "and where.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        settings = workshop.recipe.decontamination or params
        version = decontamination_step.find(workshop.store, workshop.engine, corpus, settings)
        facts = {
            "contaminated": version.counts[decontamination_step.REASON],
            "action": settings.action,
            "contaminated by set": breakdown(version.counts, decontamination_step.REASON, "set"),
        }
        return materialized(version, facts)

    return _asset
