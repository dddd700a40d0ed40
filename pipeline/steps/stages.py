"""The table of stages: the key of each, what decides it in a recipe, and the work that makes it.

The version that follows from a recipe, the partitions of variants, the record in a checkpoint's lineage and
the sources that need work are read from these rows. STAGES is in the order in which they are made.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.plugins.filters import Filter
from pipeline.recipe.recipe import Recipe
from pipeline.stages import decontamination as ngrams
from pipeline.stages import dedup as duplicates
from pipeline.stages import pii
from pipeline.stages import quality as rules
from pipeline.steps import compile_ahead
from pipeline.steps.corpus import decontamination, filters, ingest, quality, scrub, transform
from pipeline.steps.dedup import dedup, signatures
from pipeline.steps.tokens import shards, tokenizer
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from pipeline.store.work import Work


def _always(recipe: Recipe, corpus: str) -> bool:
    return True


def _nothing(recipe: Recipe) -> None:
    """For a stage that only the settings of other stages decide."""


def _no_keys(recipe: Recipe, *names: str) -> Sequence[str]:
    """For a stage that is made from no other one."""
    return ()


@dataclass(frozen=True)
class Page:
    """What the UI shows of a stage that is an asset: `{corpus}` and `{source}`, the kind of its source, may
    stand in any text. `make` makes the stage, given the store, the engine, the recipe and its names.

    `numbers` are counts of a version by their label. `breakdowns` are tables of the counts that begin with a
    prefix, and `chart` is a picture of such counts with its title.
    """

    make: Callable[..., Version]
    version: str
    description: str
    kinds: tuple[str, ...] = ("numba", "parquet")
    group: str = "{corpus}"
    job: str = "corpus"  # the first job that makes it
    numbers: Mapping[str, str] = field(default_factory=dict)
    breakdowns: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    chart: tuple[str, str] | None = None


@dataclass(frozen=True)
class Stage:
    """A row of the table. `key` may name `{corpus}`, and then also one of the recipe's own `{filter}`s: these
    are the arguments that `find` and `reads` get after the recipe.

    `find` gives the work that the recipe means, or the version where no work can be computed. `reads` are the
    keys that it is made from. `settings` are those that make the stage differ between variants; `wanted`
    tells whether a recipe has it for a corpus. A stage without a `page` is made with one that reads it.
    """

    key: str
    find: Callable[..., Version | Work]
    settings: Callable[[Recipe], Any] = _nothing
    wanted: Callable[[Recipe, str], bool] = _always
    reads: Callable[..., Sequence[str]] = _no_keys
    page: Page | None = None

    def keys(self, recipe: Recipe) -> Iterator[str]:
        """The keys that a recipe has of this stage."""
        for corpus in recipe.corpus_names if "{corpus}" in self.key else [""]:
            if self.wanted(recipe, corpus):
                names = [entry.name for entry in recipe.quality.filters] if "{filter}" in self.key else [""]
                yield from (self.key.format(corpus=corpus, filter=name) for name in names)

    def names(self, key: str) -> tuple[str, ...] | None:
        """The corpus, and the filter, in a key of this stage; None for a key of another one."""
        found = re.fullmatch(re.sub(r"{\w+}", "([^/]+)", self.key), key)
        return found.groups() if found else None


def made(recipe: Recipe, stages: tuple[Stage, ...], corpus: str | None = None) -> list[str]:
    """The keys that a recipe has of the `stages`, in their order; on request only those of one corpus."""
    found = [key for stage in stages for key in stage.keys(recipe)]
    of_one = (keys.of_corpus(corpus or "", ""), keys.token_shards(corpus or ""))
    return [key for key in found if corpus is None or key.startswith(of_one[0]) or key == of_one[1]]


def row_of(key: str, stages: Iterable[Stage]) -> tuple[Stage | None, tuple[str, ...]]:
    """The row of a key, and the names in it; no row for a key that a recipe does not decide."""
    for stage in stages:
        if (names := stage.names(key)) is not None:
            return stage, names
    return None, ()


def assets_read(recipe: Recipe, read: Iterable[str]) -> Iterator[str]:
    """The keys of the assets that the stages `read` belong to, or that those without a page are made from."""
    for key in read:
        stage, names = row_of(key, DATA_STAGES)
        if stage is None or stage.page or stage.key == keys.TOKENIZER:
            yield key
        else:
            yield from assets_read(recipe, stage.reads(recipe, *names))


def _collect(store: Store, engine: Engine, recipe: Recipe, corpus: str) -> Version:
    if store.last_used(keys.scrubbed(corpus)) is None:
        compile_ahead.start()
    return ingest.collect(store, engine, corpus, recipe.corpus(corpus).source, recipe.raw.part_bytes)


def _scrub(store: Store, engine: Engine, recipe: Recipe, corpus: str) -> Version:
    compile_ahead.wait_for_scrubbing()
    return scrub.scrub(store, engine, corpus, recipe.scrub, recipe.is_transformed(corpus))


def _index(store: Store, engine: Engine, recipe: Recipe) -> Version:
    assert recipe.decontamination is not None
    return decontamination.index(store, engine, recipe.decontamination, recipe.scrub, recipe.transform_chains)


def _search(store: Store, engine: Engine, recipe: Recipe, corpus: str) -> Version:
    assert recipe.decontamination is not None
    return decontamination.find(store, engine, corpus, recipe.decontamination)


def _raw(store: Store, recipe: Recipe, corpus: str) -> Version | Work:
    for one in recipe.decontamination.sets if recipe.decontamination else ():
        if decontamination.set_name(one) == corpus:
            return ingest.last_read(store, corpus, one.source, decontamination.PART_BYTES)
    return ingest.last_read(store, corpus, recipe.corpus(corpus).source, recipe.raw.part_bytes)


def _filtered(store: Store, recipe: Recipe, corpus: str, name: str) -> Work:
    entry = next((entry for entry in recipe.quality.filters if entry.name == name), None)
    if entry is None:
        raise StoreError(f"{keys.filtered(corpus, name)} is not a stage of the recipe {recipe.name!r}")
    return filters.measure_work(store, corpus, Filter(entry))


def _contamination(store: Store, recipe: Recipe, corpus: str) -> Work:
    assert recipe.decontamination is not None
    return decontamination.find_work(store, corpus, recipe.decontamination)


def _evaluation_ngrams(store: Store, recipe: Recipe) -> Work:
    assert recipe.decontamination is not None
    return decontamination.index_work(store, recipe.decontamination, recipe.scrub, recipe.transform_chains)


def _signatures(store: Store, recipe: Recipe, corpus: str) -> Work:
    tables = signatures.sources(store, corpus, recipe.removes_contaminated)
    return signatures.sign_work(corpus, tables, recipe.dedup)


def _dedup(store: Store, recipe: Recipe) -> Work:
    signed = [store.current(keys.signatures(name)) for name in recipe.corpus_names]
    return dedup.decide_work(recipe.corpus_names, signed, recipe.dedup)


def _tokenizer(store: Store, recipe: Recipe) -> Version:
    version = tokenizer.in_store(store, recipe.name, recipe.tokenizer)
    if version is None:
        raise StoreError(f"{keys.TOKENIZER} has not been made for this recipe yet: materialize it first")
    return version


def _scrubbed_from(recipe: Recipe, corpus: str) -> list[str]:
    return [keys.transformed(corpus) if recipe.is_transformed(corpus) else keys.raw(corpus)]


def _measured(recipe: Recipe, corpus: str) -> list[str]:
    """The tables that the verdicts of quality are made from."""
    languages = [keys.languages(corpus)] if recipe.quality.languages else []
    filtered = [keys.filtered(corpus, entry.name) for entry in recipe.quality.filters]
    return [keys.signals(corpus), *languages, *filtered]


def _compared(recipe: Recipe, corpus: str) -> list[str]:
    """The tables that the documents compared with each other come from."""
    return [*keys.judged(corpus), *([keys.contamination(corpus)] if recipe.removes_contaminated else [])]


def _scrubbed(recipe: Recipe, corpus: str, *names: str) -> list[str]:
    return [keys.scrubbed(corpus)]


# Up to the token shards: what the lineage of a checkpoint records.
DATA_STAGES = (
    Stage(
        keys.raw("{corpus}"),
        _raw,
        settings=lambda recipe: ([corpus.source for corpus in recipe.corpora], recipe.raw),
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
        lambda store, recipe, corpus: transform.transform_work(store, corpus, recipe.transforms),
        settings=lambda recipe: recipe.transforms,
        wanted=Recipe.is_transformed,
        reads=lambda recipe, corpus: [keys.raw(corpus)],
        page=Page(
            lambda store, engine, recipe, corpus: transform.transform(
                store, engine, corpus, recipe.transforms
            ),
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
        keys.scrubbed("{corpus}"),
        lambda store, recipe, corpus: scrub.scrub_work(
            store, corpus, recipe.scrub, recipe.is_transformed(corpus)
        ),
        settings=lambda recipe: recipe.scrub,
        reads=_scrubbed_from,
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
            chart=("spans", "Personal data by kind"),
        ),
    ),
    Stage(
        keys.signals("{corpus}"),
        lambda store, recipe, corpus: quality.signals_work(store, corpus),
        reads=_scrubbed,
    ),
    Stage(
        keys.languages("{corpus}"),
        lambda store, recipe, corpus: quality.languages_work(store, corpus),
        wanted=lambda recipe, corpus: bool(recipe.quality.languages),
        reads=_scrubbed,
    ),
    Stage(keys.filtered("{corpus}", "{filter}"), _filtered, reads=_scrubbed),
    Stage(
        keys.quality("{corpus}"),
        lambda store, recipe, corpus: quality.judge_work(store, corpus, recipe.quality),
        settings=lambda recipe: recipe.quality,
        reads=_measured,
        page=Page(
            lambda store, engine, recipe, corpus: quality.judge(store, engine, corpus, recipe.quality),
            rules.VERSION,
            "The Gopher, C4, FineWeb and plain signals of each document, and its verdict with the first rule "
            "that it fails.",
            numbers={"kept": "kept", "rejected": "rejected"},
            chart=("rejected", "Rejected documents by rule"),
        ),
    ),
    Stage(
        keys.EVALUATION_NGRAMS,
        _evaluation_ngrams,
        settings=lambda recipe: recipe.decontamination,
        wanted=lambda recipe, corpus: recipe.decontamination is not None,
        page=Page(
            _index,
            ngrams.VERSION,
            "The word n-grams of the evaluation sets, which are then searched for in the corpora.",
            kinds=("numba",),
            group="mixture",
            numbers={"n-grams": "ngrams"},
            breakdowns={"documents by set": ("documents", "set")},
        ),
    ),
    Stage(
        keys.contamination("{corpus}"),
        _contamination,
        wanted=lambda recipe, corpus: recipe.decontamination is not None,
        reads=lambda recipe, corpus: [*keys.judged(corpus), keys.EVALUATION_NGRAMS],
        page=Page(
            _search,
            ngrams.VERSION,
            "The documents that share a run of words with an evaluation set: which set, which words and "
            "where.",
            numbers={"contaminated": decontamination.REASON},
            breakdowns={"contaminated by set": (decontamination.REASON, "set")},
        ),
    ),
    Stage(keys.signatures("{corpus}"), _signatures, reads=_compared),
    Stage(
        keys.DEDUP,
        _dedup,
        settings=lambda recipe: recipe.dedup,
        reads=lambda recipe: list(map(keys.signatures, recipe.corpus_names)),
        page=Page(
            lambda store, engine, recipe: dedup.deduplicate(
                store, engine, recipe.corpus_names, recipe.dedup, recipe.removes_contaminated
            ),
            duplicates.VERSION,
            "Exact and near duplicates across all corpora. MinHash-LSH finds candidates; a document is "
            "removed only after its exact Jaccard similarity was computed.",
            group="mixture",
            numbers={"kept": "kept", "removed": "removed"},
            breakdowns={"removed by reason": ("removed", "reason")},
        ),
    ),
    Stage(
        keys.TOKENIZER,
        _tokenizer,
        settings=lambda recipe: recipe.tokenizer,
        reads=lambda recipe: tokenizer.input_keys(recipe.corpus_names),
    ),
    Stage(
        keys.token_shards("{corpus}"),
        lambda store, recipe, corpus: shards.tokenize_work(store, corpus, recipe.shards),
        settings=lambda recipe: recipe.shards,
        reads=lambda recipe, corpus: [*keys.judged(corpus), keys.DEDUP, keys.TOKENIZER],
        page=Page(
            lambda store, engine, recipe, corpus: shards.tokenize(store, engine, corpus, recipe.shards),
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
