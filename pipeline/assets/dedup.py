"""One decision for each document of all corpora: kept, or a duplicate of which."""

import dagster as dg

from pipeline.assets.corpora import corpus_key
from pipeline.assets.outcome import breakdown, explained, materialized
from pipeline.assets.resources import Workshop
from pipeline.flows import dedup as dedup_flow
from pipeline.recipe import Recipe
from pipeline.stages import dedup


def dedup_asset(recipe: Recipe) -> dg.AssetsDefinition:
    """Depends on every corpus: duplicates are found across them."""

    @dg.asset(
        key="dedup",
        deps=[corpus_key(name, stage) for name in recipe.corpus_names for stage in ("scrubbed", "quality")],
        group_name="mixture",
        kinds={"numba", "parquet"},
        code_version=dedup.VERSION,
        description="Exact and MinHash-LSH duplicates across all corpora, each verified by its exact Jaccard before it is removed.",
    )
    @explained
    def _asset(workshop: Workshop) -> dg.MaterializeResult:
        version = dedup_flow.deduplicate(workshop.store, workshop.engine, workshop.recipe.corpus_names, workshop.recipe.dedup)
        counts = version.counts
        return materialized(
            version, {"kept": counts["kept"], "removed": counts["removed"], "removed by reason": breakdown(counts, "removed", "reason")}
        )

    return _asset
