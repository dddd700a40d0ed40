"""One decision for each document of all corpora: kept, or a duplicate of which."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from pipeline.assets import checks
from pipeline.assets.corpora import reasons_table
from pipeline.assets.metadata import asset_key, breakdown, materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.reports import dedup as report
from pipeline.reports.images import inline
from pipeline.stages import dedup
from pipeline.steps.corpus.quality import reasons
from pipeline.steps.dedup import dedup as dedup_flow
from pipeline.store import keys
from pipeline.store.versions import Store, Version


def dedup_asset(recipe: Recipe) -> dg.AssetsDefinition:
    """Depends on every corpus: duplicates are found across them."""

    stages = [keys.scrubbed, keys.quality, *([keys.contamination] if recipe.removes_contaminated else [])]

    @dg.asset(
        key=keys.DEDUP,
        deps=[asset_key(stage(name)) for name in recipe.corpus_names for stage in stages],
        group_name="mixture",
        kinds={"numba", "parquet"},
        code_version=dedup.VERSION,
        check_specs=checks.specs(keys.DEDUP),
        description="Exact and MinHash-LSH duplicates across all corpora, each verified by its exact Jaccard "
        "before it is removed.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        made = workshop.recipe
        version = dedup_flow.deduplicate(
            workshop.store, workshop.engine, made.corpus_names, made.dedup, made.removes_contaminated
        )
        return materialized(
            version,
            {
                **_facts(version.counts),
                "quality's verdicts": reasons_table(
                    {name: reasons(workshop.store.current(keys.quality(name))) for name in made.corpus_names}
                ),
                **_state(workshop.store, version, made.corpus_names),
                **_pictures(workshop.store, version, made.corpus_names),
            },
            checks.results(workshop, version),
        )

    return _asset


def _facts(counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "kept": counts["kept"],
        "removed": counts["removed"],
        "removed by reason": breakdown(counts, "removed", "reason"),
    }


def _state(store: Store, version: Version, corpora: list[str]) -> dict[str, Any]:
    """What the next run finds again, on disk."""
    kept = {
        "signatures": sum(store.current(keys.signatures(name)).bytes for name in corpora),
        "evidence": store.current(keys.DEDUP_EVIDENCE).bytes,
        "decisions": version.bytes,
    }
    return {
        f"{table} bytes per document": round(size / max(version.counts["documents"], 1), 1)
        for table, size in kept.items()
    }


def _pictures(store: Store, version: Version, corpora: list[str]) -> dict[str, Any]:
    found = report.report(store, version, corpora)
    tables = {
        name: dg.MetadataValue.table([dg.TableRecord(row) for row in rows])
        for name, rows in found["tables"].items()
        if rows
    }
    return {
        "duplicates": inline(found["png"], "near duplicates by similarity, duplicates between corpora"),
        **tables,
    }
