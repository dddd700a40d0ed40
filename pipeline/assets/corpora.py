"""The chain raw -> (transformed ->) scrubbed -> quality, in its own group for each corpus of the recipe."""

from collections.abc import Mapping, Sequence

import dagster as dg

from pipeline.assets import check_results
from pipeline.assets.metadata import asset_key, breakdown, chart, materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.corpora import Corpus
from pipeline.recipe.recipe import Recipe
from pipeline.stages import pii, quality
from pipeline.steps import compile_ahead
from pipeline.steps.corpus import ingest, scrub, transform
from pipeline.steps.corpus import quality as quality_step
from pipeline.store import keys


def corpus_assets(corpus: Corpus, recipe: Recipe) -> list[dg.AssetsDefinition]:
    """The assets of a corpus: three, and a fourth if the recipe transforms its texts."""
    if not recipe.is_transformed(corpus.name):
        return [_raw(corpus), _scrubbed(corpus, keys.raw(corpus.name)), _quality(corpus)]
    scrubbed = _scrubbed(corpus, keys.transformed(corpus.name))
    return [_raw(corpus), _transformed(corpus), scrubbed, _quality(corpus)]


def _raw(corpus: Corpus) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(keys.raw(corpus.name)),
        deps=[asset_key(keys.source(corpus.name))],
        group_name=corpus.name,
        kinds={corpus.source.kind, "parquet"},
        code_version=ingest.VERSION,
        check_specs=check_results.specs(keys.raw(corpus.name)),
        description=f"The documents of `{corpus.name}` as its source delivers them. Rows that cannot be read "
        "are set aside with their reason.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        recipe = workshop.recipe
        if workshop.store.last_used(keys.scrubbed(corpus.name)) is None:
            compile_ahead.start()
        version = ingest.collect(
            workshop.store,
            workshop.engine,
            corpus.name,
            recipe.corpus(corpus.name).source,
            recipe.raw.part_bytes,
        )
        counts = version.counts
        facts = {
            "set aside": counts["set_aside"],
            "set aside by reason": breakdown(counts, "set_aside", "reason"),
        }
        return materialized(version, facts, check_results.results(workshop, version))

    return _asset


def _transformed(corpus: Corpus) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(keys.transformed(corpus.name)),
        deps=[asset_key(keys.raw(corpus.name))],
        group_name=corpus.name,
        kinds={"python", "parquet"},
        code_version=transform.VERSION,
        description="The documents after the recipe's `transforms`. Documents on which a transform raised an "
        "exception are left out and listed in the table `failures`.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        recipe = workshop.recipe
        version = transform.transform(workshop.store, workshop.engine, corpus.name, recipe.transforms)
        counts = version.counts
        facts = {
            "changed": counts["changed"],
            "changed by transform": breakdown(counts, "changed", "transform"),
            "set aside": counts["failed"],
            "set aside by transform": breakdown(counts, "failed", "transform"),
        }
        return materialized(version, facts)

    return _asset


def _scrubbed(corpus: Corpus, read_from: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(keys.scrubbed(corpus.name)),
        deps=[asset_key(read_from)],
        group_name=corpus.name,
        kinds={"numba", "parquet"},
        code_version=pii.VERSION,
        check_specs=check_results.specs(keys.scrubbed(corpus.name)),
        description="The documents with personal data replaced by typed placeholders, in text, URL and "
        "metadata. The table `spans` records the place of each replacement in the text, never the value.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        recipe = workshop.recipe
        transformed = recipe.is_transformed(corpus.name)
        compile_ahead.wait_for_scrubbing()
        version = scrub.scrub(workshop.store, workshop.engine, corpus.name, recipe.scrub, transformed)
        counts = version.counts
        facts = {
            "spans": counts["spans"],
            "documents with PII": counts["documents_with_pii"],
            "replaced in URLs": counts["spans_in_url"],
            "replaced in metadata": counts["spans_in_metadata"],
            "PII by kind": breakdown(counts, "spans", "kind"),
            **chart(version, "spans", "Personal data by kind"),
        }
        return materialized(version, facts, check_results.results(workshop, version))

    return _asset


def _quality(corpus: Corpus) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(keys.quality(corpus.name)),
        deps=[asset_key(keys.scrubbed(corpus.name))],
        group_name=corpus.name,
        kinds={"numba", "parquet"},
        code_version=quality.VERSION,
        check_specs=check_results.specs(keys.quality(corpus.name)),
        description="The Gopher, C4, FineWeb and plain signals of each document, and its verdict with the "
        "first rule that it fails.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        version = quality_step.judge(workshop.store, workshop.engine, corpus.name, workshop.recipe.quality)
        counts = version.counts
        reasons = quality_step.reasons(version)
        facts = {
            "kept": counts["kept"],
            "rejected": counts["rejected"],
            "share kept": round(reasons[0].share, 4),
            "verdicts by rule": reasons_table({corpus.name: reasons}),
            **chart(version, "rejected", "Rejected documents by rule"),
        }
        if workshop.recipe.quality.languages is not None:
            facts["languages"] = breakdown(counts, "languages", "language")
        return materialized(version, facts, check_results.results(workshop, version))

    return _asset


def reasons_table(by_corpus: Mapping[str, Sequence[quality_step.Reason]]) -> dg.TableMetadataValue:
    """Kept and rejected documents by corpus and rule, with example ids. `python -m pipeline inspect RULE`
    shows the documents.
    """
    columns = {
        "corpus": "string",
        "verdict": "string",
        "documents": "int",
        "share": "float",
        "examples": "string",
    }
    records = [
        dg.TableRecord(
            {
                "corpus": name,
                "verdict": reason.rule or "kept",
                "documents": reason.documents,
                "share": round(reason.share, 4),
                "examples": ", ".join(reason.examples),
            }
        )
        for name, reasons in by_corpus.items()
        for reason in reasons
    ]
    return dg.MetadataValue.table(
        records, dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()])
    )
