"""The table of stages: the key of each, what decides it in a recipe, and the work that makes it.

The version that follows from a recipe, the partitions of variants, the record in a checkpoint's lineage and
the sources that need work are read from these rows. STAGES is in the order in which they are made.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pipeline.plugins.filters import Filter
from pipeline.plugins.settings import FilterChoice
from pipeline.recipe.recipe import Recipe
from pipeline.stages import decontamination as ngrams
from pipeline.stages import dedup as duplicates
from pipeline.stages import edits, pii, text_windows
from pipeline.stages import quality as rules
from pipeline.stages.dedup import DedupParams
from pipeline.stages.tokenizer import TokenizerChoice
from pipeline.steps import compile_ahead
from pipeline.steps.corpus import (
    decontamination,
    edit,
    evaluation_texts,
    filters,
    ingest,
    quality,
    quality_model,
    repeated_units,
    scrub,
    transform,
)
from pipeline.steps.dedup import dedup, signatures
from pipeline.steps.stage import Page, Stage
from pipeline.steps.tokens import shards, token_index, tokenizer
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from pipeline.store.work import Work


def made(recipe: Recipe, corpus: str | None = None) -> list[str]:
    """The keys of the data that a recipe has, in their order; on request only those of one corpus."""
    found = [key for stage in DATA_STAGES for key in stage.keys(recipe)]
    return [key for key in found if corpus is None or keys.is_of_corpus(key, corpus)]


def made_from(recipe: Recipe, key: str) -> Sequence[str]:
    """The keys that a key of the data is made from."""
    stage, names = row_of(key, (*DATA_STAGES, TOKEN_INDEX))
    return stage.reads(recipe, *names) if stage else ()


def row_of(key: str, stages: Iterable[Stage]) -> tuple[Stage | None, tuple[str, ...]]:
    """The row of a key, and the names in it; no row for a key that a recipe does not decide."""
    for stage in stages:
        if (names := stage.names(key)) is not None:
            return stage, names
    return None, ()


def is_asset(key: str) -> bool:
    """Whether a key is one of an asset; it is not if it is made with the asset of another one."""
    return asset_of(key) == key


def asset_of(key: str) -> str:
    """The key of the asset that makes `key`: mostly itself."""
    stage, names = row_of(key, DATA_STAGES)
    if stage is None or stage.page or key == keys.TOKENIZER:
        return key
    after = DATA_STAGES[DATA_STAGES.index(stage) :]
    return next(one.key for one in after if one.page).format(corpus=names[0])


def assets_read(recipe: Recipe, key: str) -> Iterator[str]:
    """The keys of the assets that `key` is made from, directly or through stages that are no assets."""
    for read in made_from(recipe, key):
        yield from [read] if is_asset(read) else assets_read(recipe, read)


def final_assets(recipe: Recipe) -> list[str]:
    """The assets that are in the lineage of a checkpoint and that no stage of the data reads."""
    assets = [key for key in made(recipe) if is_asset(key)]
    read = {other for key in assets for other in assets_read(recipe, key)}
    return [key for key in assets if key not in read]


def made_of_one_corpus(recipe: Recipe, corpus: str) -> list[str]:
    """The source of a corpus and the assets that nothing else is needed for."""
    found = [keys.source(corpus)]
    for key in made(recipe, corpus):
        if is_asset(key) and set(assets_read(recipe, key)) <= set(found):
            found.append(key)
    return found


def _collect(store: Store, engine: Engine, corpus: str, *settings: Any) -> Version:
    if store.last_used(keys.scrubbed(corpus)) is None:
        compile_ahead.start()
    return ingest.collect(store, engine, corpus, *settings)


def _scrub(store: Store, engine: Engine, corpus: str, *settings: Any) -> Version:
    compile_ahead.wait_for_scrubbing()
    return scrub.scrub(store, engine, corpus, *settings)


def _cut(store: Store, engine: Engine, *settings: Any) -> Version:
    compile_ahead.start()  # which does nothing any more once a kernel is compiled
    compile_ahead.wait_for_scrubbing()
    return evaluation_texts.cut(store, engine, *settings)


def _source(recipe: Recipe, corpus: str) -> tuple[Any, int]:
    for one in recipe.decontamination.sets if recipe.decontamination else ():
        if decontamination.set_name(one) == corpus:
            return one.source, decontamination.PART_BYTES
    for text in recipe.evaluation.texts:
        if evaluation_texts.corpus_name(text.name) == corpus:
            return text.source, evaluation_texts.PART_BYTES
    return recipe.corpus(corpus).source, recipe.raw.part_bytes


def _filters(recipe: Recipe, corpus: str, name: str) -> list[FilterChoice]:
    return [entry for entry in recipe.rules(corpus).quality.filters if entry.name == name]


def _signatures(store: Store, corpus: str, params: DedupParams, decontaminated: bool, compared: bool) -> Work:
    tables = signatures.sources(store, corpus, decontaminated)
    return signatures.sign_work(corpus, tables, params, compared)


def _dedup(
    store: Store,
    corpora: Sequence[str],
    params: DedupParams,
    decontaminated: bool,
    apart: Sequence[str],
    excluded: Sequence[str],
) -> Work:
    signed = [store.current(keys.signatures(name)) for name in corpora]
    return dedup.decide_work(corpora, signed, params, excluded)


def _tokenizer(store: Store, recipe: str, params: TokenizerChoice) -> Version:
    version = tokenizer.in_store(store, recipe, params)
    if version is None:
        raise StoreError(f"{keys.TOKENIZER} has not been made for this recipe yet: materialize it first")
    return version


def _scrubbed(recipe: Recipe, corpus: str, *names: str) -> list[str]:
    model = [keys.QUALITY_MODEL] if recipe.quality_model else []  # which the filter of a variant may read
    return [keys.scrubbed(corpus), *model]


def _unedited(recipe: Recipe, corpus: str) -> str:
    return keys.transformed(corpus) if recipe.is_transformed(corpus) else keys.raw(corpus)


def _unscrubbed(recipe: Recipe, corpus: str) -> str:
    return keys.edited(corpus) if recipe.is_edited(corpus) else _unedited(recipe, corpus)


def _repeats(recipe: Recipe, corpus: str) -> bool:
    return bool(recipe.rules(corpus).edits.repeated)


def _searches(recipe: Recipe, *names: str) -> bool:
    return recipe.decontamination is not None


# No data is made from these two, so that they are no part of the lineage of a checkpoint.
TOKEN_INDEX = Stage(
    keys.token_index("{corpus}"),
    token_index.index_work,
    reads=lambda recipe, corpus: [keys.token_shards(corpus)],
    wanted=lambda recipe, corpus: recipe.token_index,
    page=Page(
        token_index.index,
        token_index.VERSION,
        "Where each run of tokens occurs in the training text of `{corpus}`, so that `python -m pipeline "
        "trace` finds the documents that hold a text.",
        kinds=("memmap",),
        group="token_shards",
        job="pretrain",
        numbers={"bytes": "bytes"},
    ),
)
EVALUATION_TEXTS = Stage(
    keys.evaluation_text("{text}"),
    evaluation_texts.cut_work,
    settings=lambda recipe, name: [text for text in recipe.evaluation.texts if text.name == name],
    page=Page(
        _cut,
        text_windows.VERSION,
        "The text `{text}` in windows that do not depend on a tokenizer, neither filtered nor deduplicated. "
        "Every checkpoint is scored on it, so that models of other corpora or filters can be compared.",
        kinds=("parquet",),
        group="model",
        job="pretrain",
        numbers={"windows": "windows", "bytes scored": "scored_bytes", "bytes read": "text_bytes"},
    ),
)
# Up to the token shards: what the lineage of a checkpoint records.
DATA_STAGES = (
    Stage(
        keys.raw("{corpus}"),
        ingest.last_read,
        settings=_source,
        reads=lambda recipe, corpus: [keys.source(corpus)],
        page=Page(
            _collect,
            ingest.VERSION,
            "The documents of `{corpus}` as its source delivers them. Rows that cannot be read are set aside "
            "with their reason.",
            kinds=("{source}", "parquet"),
            numbers={"set aside": "set_aside"},
            breakdowns={"set aside by reason": ("set_aside", "reason")},
        ),
    ),
    Stage(
        keys.transformed("{corpus}"),
        transform.transform_work,
        settings=lambda recipe, corpus: [recipe.transforms],
        reads=lambda recipe, corpus: [keys.raw(corpus)],
        wanted=Recipe.is_transformed,
        page=Page(
            transform.transform,
            transform.VERSION,
            "The documents after the recipe's `transforms`. Documents on which a transform raised an "
            "exception are left out and listed in the table `failures`.",
            kinds=("python", "parquet"),
            numbers={"changed": "changed", "set aside": "failed"},
            breakdowns={
                "changed by transform": ("changed", "transform"),
                "set aside by transform": ("failed", "transform"),
            },
        ),
    ),
    Stage(
        keys.unit_counts("{corpus}"),
        repeated_units.count_work,
        settings=lambda recipe, corpus: (recipe.rules(corpus).edits.repeated, _unedited(recipe, corpus)),
        reads=lambda recipe, corpus: [_unedited(recipe, corpus)],
        wanted=_repeats,
    ),
    Stage(
        keys.repeated_units("{corpus}"),
        repeated_units.find_work,
        settings=lambda recipe, corpus: [recipe.rules(corpus).edits.repeated],
        reads=lambda recipe, corpus: [keys.unit_counts(corpus)],
        wanted=_repeats,
    ),
    Stage(
        keys.edited("{corpus}"),
        edit.edit_work,
        settings=lambda recipe, corpus: (recipe.rules(corpus).edits, _unedited(recipe, corpus)),
        reads=lambda recipe, corpus: [
            _unedited(recipe, corpus),
            *([keys.repeated_units(corpus)] if _repeats(recipe, corpus) else []),
        ],
        wanted=Recipe.is_edited,
        page=Page(
            edit.edit,
            edits.VERSION,
            "The documents without the lines that the recipe's `edits` cut. The table `cuts` keeps each with "
            "its place and rule, and `python -m pipeline restore` puts them back.",
            kinds=("parquet",),
            numbers={"changed": "changed", "cuts": "cuts", "bytes cut": "bytes_cut"},
            breakdowns={"cuts by rule": ("cuts", "rule")},
        ),
    ),
    Stage(
        keys.scrubbed("{corpus}"),
        scrub.scrub_work,
        settings=lambda recipe, corpus: (recipe.rules(corpus).scrub, _unscrubbed(recipe, corpus)),
        reads=lambda recipe, corpus: [_unscrubbed(recipe, corpus)],
        page=Page(
            _scrub,
            pii.VERSION,
            "The documents with personal data replaced by typed placeholders, in text, URL and metadata. The "
            "table `spans` records the place of each replacement in the text, never the value.",
            numbers={
                "spans": "spans",
                "documents with PII": "documents_with_pii",
                "replaced in URLs": "spans_in_url",
                "replaced in metadata": "spans_in_metadata",
            },
            breakdowns={"PII by kind": ("spans", "kind")},
        ),
    ),
    Stage(
        keys.QUALITY_MODEL,
        quality_model.train_work,
        settings=lambda recipe: [recipe.quality_model],
        reads=lambda recipe: quality_model.read(recipe.quality_model),
        wanted=lambda recipe: recipe.quality_model is not None,
        page=Page(
            quality_model.train,
            quality_model.VERSION,
            "A classifier of text, and what it does with text that it was not trained on.",
            kinds=("fasttext",),
            group="all_corpora",
        ),
    ),
    Stage(keys.signals("{corpus}"), quality.SIGNALS.work, reads=_scrubbed),
    Stage(
        keys.languages("{corpus}"),
        lambda store, corpus, model: quality.languages(store, model).work(store, corpus),
        settings=lambda recipe, corpus: [recipe.rules(corpus).quality.language_file],
        reads=_scrubbed,
        wanted=lambda recipe, corpus: recipe.rules(corpus).quality.detects,
    ),
    Stage(
        keys.filtered("{corpus}", "{filter}"),
        lambda store, corpus, name, entry: filters.measure_work(store, corpus, Filter(entry)),
        settings=_filters,
        reads=_scrubbed,
        wanted=lambda recipe, *names: bool(_filters(recipe, *names)),
    ),
    Stage(
        keys.quality("{corpus}"),
        quality.judge_work,
        settings=lambda recipe, corpus: [recipe.rules(corpus).quality],
        reads=lambda recipe, corpus: quality.measured(corpus, recipe.rules(corpus).quality),
        page=Page(
            quality.judge,
            rules.VERSION,
            "The Gopher, C4, FineWeb and plain signals of each document, and its verdict with the first rule "
            "that it fails.",
            numbers={"kept": "kept", "rejected": "rejected"},
        ),
    ),
    Stage(
        keys.EVALUATION_NGRAMS,
        decontamination.index_work,
        settings=lambda recipe: (recipe.decontamination, recipe.scrubs, recipe.transform_chains),
        wanted=_searches,
        page=Page(
            decontamination.index,
            ngrams.INDEX_VERSION,
            "The word n-grams of the evaluation sets, which are then searched for in the corpora.",
            kinds=("numba",),
            group="all_corpora",
            numbers={"n-grams": "ngrams"},
            breakdowns={"documents by set": ("documents", "set")},
        ),
    ),
    Stage(
        keys.contamination("{corpus}"),
        decontamination.find_work,
        settings=lambda recipe, corpus: [recipe.decontamination],
        reads=lambda recipe, corpus: [*keys.judged(corpus), keys.EVALUATION_NGRAMS],
        wanted=_searches,
        page=Page(
            decontamination.find,
            ngrams.VERSION,
            "The documents that share a run of words with an evaluation set: which set, which words and "
            "where, and whether they are a quote or a stock phrase.",
            numbers={
                "contaminated": decontamination.REASON,
                "with stock phrases only": decontamination.STOCK_PHRASES,
            },
            breakdowns={"contaminated by set": (decontamination.REASON, "set")},
        ),
    ),
    Stage(
        keys.signatures("{corpus}"),
        _signatures,
        settings=lambda recipe, corpus: (
            recipe.dedup,
            recipe.removes_contaminated,
            recipe.rules(corpus).dedup,
        ),
        reads=lambda recipe, corpus: signatures.compared(corpus, recipe.removes_contaminated),
    ),
    Stage(
        keys.DEDUP,
        _dedup,
        settings=lambda recipe: (
            recipe.corpus_names,
            recipe.dedup,
            recipe.removes_contaminated,
            recipe.apart,
            recipe.excluded,
        ),
        reads=lambda recipe: list(map(keys.signatures, recipe.corpus_names)),
        page=Page(
            dedup.deduplicate,
            duplicates.VERSION,
            "Exact and near duplicates across all corpora. MinHash-LSH finds candidates; a document is "
            "removed only after its exact Jaccard similarity was computed.",
            group="all_corpora",
            numbers={"kept": "kept", "removed": "removed"},
            breakdowns={"removed by reason": ("removed", "reason")},
        ),
    ),
    Stage(
        keys.TOKENIZER,
        _tokenizer,
        settings=lambda recipe: (recipe.name, recipe.tokenizer),
        reads=lambda recipe: tokenizer.input_keys(recipe.weights),
    ),
    Stage(
        keys.token_shards("{corpus}"),
        shards.tokenize_work,
        settings=lambda recipe, corpus: [recipe.shard_params],
        reads=lambda recipe, corpus: shards.needed(corpus),
        page=Page(
            shards.tokenize,
            shards.VERSION,
            "The kept documents of this corpus as token ids, in memory-mapped Megatron shards. Held-out "
            "documents have their own shards.",
            kinds=("memmap",),
            group="token_shards",
            job="retokenize",
            numbers={
                "train tokens": "train_tokens",
                "validation tokens": "validation_tokens",
                "train documents": "train_documents",
                "validation documents": "validation_documents",
                "documents without text": "empty_documents",
                "parts that the fast encoder got wrong": "encoder_fallbacks",
            },
        ),
    ),
)
