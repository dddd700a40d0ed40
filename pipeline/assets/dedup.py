"""Deduplicates all corpora: keeps each document, or removes it as a duplicate of another."""

from typing import Any

import dagster as dg

from pipeline.assets import check_results
from pipeline.assets.corpora import reasons_table
from pipeline.assets.metadata import asset_key, breakdown, materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.reports import dedup as report
from pipeline.reports.images import inline
from pipeline.stages import dedup
from pipeline.steps.corpus.quality import reasons
from pipeline.steps.dedup import dedup as dedup_step
from pipeline.steps.dedup import verification
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.versions import Store


def dedup_asset(recipe: Recipe) -> dg.AssetsDefinition:
    """Depends on every corpus: duplicates are found across them."""

    stages = [keys.scrubbed, keys.quality, *([keys.contamination] if recipe.removes_contaminated else [])]

    @dg.asset(
        key=keys.DEDUP,
        deps=[asset_key(stage(name)) for name in recipe.corpus_names for stage in stages],
        group_name="mixture",
        kinds={"numba", "parquet"},
        code_version=dedup.VERSION,
        check_specs=check_results.specs(keys.DEDUP),
        description="Exact and near duplicates across all corpora. MinHash-LSH finds candidates; a document "
        "is removed only after its exact Jaccard similarity was computed.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        recipe, store = workshop.recipe, workshop.store
        corpora = recipe.corpus_names
        version = dedup_step.deduplicate(
            store, workshop.engine, corpora, recipe.dedup, recipe.removes_contaminated
        )
        verdicts = {name: reasons(store.current(keys.quality(name))) for name in corpora}
        facts = {
            "kept": version.counts["kept"],
            "removed": version.counts["removed"],
            "removed by reason": breakdown(version.counts, "removed", "reason"),
            "quality's verdicts": reasons_table(verdicts),
            **_reusable(store, version, recipe),
            **_pictures(store, version, corpora),
        }
        return materialized(version, facts, check_results.results(workshop, version))

    return _asset


def _reusable(store: Store, version: Version, recipe: Recipe) -> dict[str, Any]:
    """Bytes per document of the tables on disk that the next run reuses."""
    evidence = verification.latest(store, recipe.dedup)
    tables = {
        "signatures": sum(store.current(keys.signatures(name)).bytes for name in recipe.corpus_names),
        "evidence": evidence.bytes if evidence else 0,
        "decisions": version.bytes,
    }
    return {
        f"{table} bytes per document": round(size / max(version.counts["documents"], 1), 1)
        for table, size in tables.items()
    }


def _pictures(store: Store, version: Version, corpora: list[str]) -> dict[str, Any]:
    figures = report.report(store, version, corpora)
    tables = {
        name: dg.MetadataValue.table([dg.TableRecord(row) for row in rows])
        for name, rows in figures["tables"].items()
        if rows
    }
    return {
        "duplicates": inline(figures["png"], "near duplicates by similarity, duplicates between corpora"),
        **tables,
    }
