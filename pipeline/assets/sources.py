"""What each corpus is read from, observed: the UI shows a corpus as out of date once its source has
changed.
"""

import dagster as dg

from pipeline.assets.corpora import corpus_key
from pipeline.assets.metadata import user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Corpus
from pipeline.steps.lineage import source_state as observe_flow


def source_asset(corpus: Corpus) -> dg.SourceAsset:
    """Observed at the start of each run, and by the sensor."""

    @dg.observable_source_asset(
        key=corpus_key(corpus.name, "source"),
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
