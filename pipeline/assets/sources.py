"""What each corpus is read from, observed: the UI shows a corpus as out of date once its source has
changed.
"""

import dagster as dg

from pipeline.assets.metadata import asset_key, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Corpus
from pipeline.steps.lineage import source_state as observe_flow
from pipeline.store import keys


def source_asset(corpus: Corpus) -> dg.SourceAsset:
    """Observed at the start of each run, and by the sensor."""

    @dg.observable_source_asset(
        key=asset_key(keys.source(corpus.name)),
        group_name=corpus.name,
        description=f"Where the documents of `{corpus.name}` come from. Its version changes when they may "
        "have.",
    )
    @user_errors_as_failures
    def _source(workshop: PipelineResources) -> dg.DataVersion:
        return dg.DataVersion(
            observe_flow.observe(workshop.store, workshop.recipe.corpus(corpus.name)).version
        )

    return _source
