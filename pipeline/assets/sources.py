"""Observes the source of each corpus: once it has changed, the UI shows the corpus as out of date."""

import dagster as dg

from pipeline.assets.metadata import asset_key, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.corpora import Corpus
from pipeline.steps.lineage import source_state
from pipeline.store import keys


def source_asset(corpus: Corpus) -> dg.SourceAsset:
    """Observed at the start of each run, and by the sensor."""

    @dg.observable_source_asset(
        key=asset_key(keys.source(corpus.name)),
        group_name=corpus.name,
        description=f"Where the documents of `{corpus.name}` come from. The version changes when the "
        "documents may have changed.",
    )
    @user_errors_as_failures
    def _source(workshop: PipelineResources) -> dg.DataVersion:
        state = source_state.observe(workshop.store, workshop.recipe, workshop.recipe.corpus(corpus.name))
        return dg.DataVersion(state.version)

    return _source
