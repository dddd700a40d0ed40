"""Exports the trained model for others to use."""

import logging

import dagster as dg

from pipeline.assets import check_results
from pipeline.assets.metadata import materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.reports.images import encoded
from pipeline.steps.model import export
from pipeline.store import keys
from pipeline.store.cleanup import gc

log = logging.getLogger(__name__)


def exported_model_asset() -> dg.AssetsDefinition:
    """Hugging Face files and a model card."""

    @dg.asset(
        key=keys.EXPORTED_MODEL,
        deps=["pretrained_model", "evaluation"],
        group_name="model",
        kinds={"huggingface"},
        code_version=export.VERSION,
        check_specs=check_results.specs(keys.EXPORTED_MODEL),
        description="The final checkpoint as files that `transformers` loads, with a model card and its "
        "lineage.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        version = export.export(workshop.store)
        for item in gc.retirable(workshop.store, workshop.recipe.limits):
            if gc.retire(workshop.store, item):
                log.info("retention: removed %s (%s)", item.place, item.why)
        card = version.only("README.md").read_text(encoding="utf-8")
        for picture in version.directory().glob("*.png"):
            card = card.replace(f"]({picture.name})", f"](data:image/png;base64,{encoded(picture)})")
        return materialized(
            version, {"model card": dg.MetadataValue.md(card)}, check_results.results(workshop, version)
        )

    return _asset
