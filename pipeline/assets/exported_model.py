"""Exports the trained model for others to use."""

import logging

import dagster as dg

from pipeline.assets import checkpoints, leaderboard
from pipeline.assets.asset import asset, check_results
from pipeline.assets.metadata import materialized
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.reports.images import as_text
from pipeline.steps.model import export
from pipeline.steps.stage import Page
from pipeline.store import keys
from pipeline.store.cleanup import gc

log = logging.getLogger(__name__)


def exported_model_asset(recipe: Recipe, used: UsedRecipe) -> dg.AssetsDefinition:
    """The model of the recipe, or of a section of its `post_training`, for others."""

    return asset(
        keys.EXPORTED_MODEL,
        Page(
            "The final checkpoint as files that `transformers` loads, with a model card and its lineage.",
            ("huggingface",),
            "model",
        ),
        [keys.PRETRAINED_MODEL, keys.EVALUATION],
        version=export.VERSION,
        used=used,
        section=recipe.section,
        made_by=export.export,
    )(_export)


def _export(context: dg.AssetExecutionContext, workshop: PipelineResources) -> dg.MaterializeResult:
    version = export.export(workshop.store)
    for item in gc.retirable(workshop.store, workshop.recipe.limits):
        if gc.retire(workshop.store, item):
            log.info("retention: removed %s (%s)", item.place, item.why)
    checkpoints.update_weights(context.instance, workshop.store, workshop.used)
    leaderboard.update(context.instance, workshop.store, workshop.used)
    card = version.only("README.md").read_text(encoding="utf-8")
    for picture in version.directory().glob("*.png"):
        card = card.replace(f"]({picture.name})", f"](data:image/png;base64,{as_text(picture.read_bytes())})")
    return materialized(version, {"model card": dg.MetadataValue.md(card)}, check_results(workshop, version))
