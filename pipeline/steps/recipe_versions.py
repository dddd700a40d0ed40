"""Finds the version of each key that a recipe means: the one that its settings made from the versions before.

Only two keys cannot be computed: what a source held when it was last read, and the frozen tokenizer.
"""

from pipeline.plugins.filters import Filter
from pipeline.recipe.recipe import Recipe
from pipeline.steps.corpus import decontamination, filters, ingest, quality, scrub, transform
from pipeline.steps.dedup import dedup, signatures
from pipeline.steps.mixture_search import search
from pipeline.steps.model import evaluate, export
from pipeline.steps.tokens import shards, tokenizer
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.fingerprint import fingerprint
from pipeline.store.last_versions import RecipeName
from pipeline.store.manifest import Version
from pipeline.store.versions import Store, StoreError, default_store
from pipeline.store.work import Work

NAME_LENGTH = 8  # hex digits after the recipe's name


class RecipeVersions:
    """The versions of `recipe`. `written`: the recipe without the changes that one run made to it."""

    def __init__(self, recipe: Recipe, written: Recipe | None = None):
        self.recipe = recipe
        self.name = _name(recipe, written or recipe)

    def find(self, store: Store, key: str) -> Version | Work:
        """The version of `key` that follows from the recipe, or the work that would make it. Raises
        StoreError when a version that it is made from is missing, or when the recipe has no such stage.
        """
        stage = keys.stage(key)
        if stage == "raw":
            return self._raw(store, keys.corpus(key))
        if stage == keys.TOKENIZER:
            return self._tokenizer(store)
        work = self._work(store, key, stage)
        return store.find(work) or work

    def _raw(self, store: Store, corpus: str) -> Version | Work:
        sets = self.recipe.decontamination.sets if self.recipe.decontamination else ()
        for one in sets:
            if decontamination.set_name(one) == corpus:
                return ingest.last_read(store, corpus, one.source, decontamination.PART_BYTES)
        source = self.recipe.corpus(corpus).source
        return ingest.last_read(store, corpus, source, self.recipe.raw.part_bytes)

    def _tokenizer(self, store: Store) -> Version:
        version = tokenizer.in_store(store, self.recipe.name, self.recipe.tokenizer)
        if version is None:
            raise StoreError(f"{keys.TOKENIZER} has not been made for this recipe yet: materialize it first")
        return version

    def _work(self, store: Store, key: str, stage: str) -> Work:
        recipe = self.recipe
        match stage:
            case keys.EVALUATION_NGRAMS if recipe.decontamination:
                chains = recipe.transform_chains
                return decontamination.index_work(store, recipe.decontamination, recipe.scrub, chains)
            case keys.DEDUP:
                signed = [store.current(keys.signatures(name)) for name in recipe.corpus_names]
                return dedup.decide_work(recipe.corpus_names, signed, recipe.dedup)
            case keys.MIXTURE_SEARCH:
                return search.search_work(store, recipe)
            case keys.PRETRAINED_MODEL:
                return plan.plan_work(store, recipe)
            case keys.EVALUATION:
                return evaluate.evaluate_work(store, recipe.training.samples, recipe.evaluation.benchmarks)
            case keys.EXPORTED_MODEL:
                return export.export_work(store)
            case keys.TOKEN_SHARDS:
                return shards.tokenize_work(store, keys.corpus_of_shards(key), recipe.shards)
        return self._corpus_work(store, keys.corpus(key), stage)

    def _corpus_work(self, store: Store, corpus: str, stage: str) -> Work:
        recipe = self.recipe
        match stage:
            case "transformed":
                return transform.transform_work(store, corpus, recipe.transforms)
            case "scrubbed":
                return scrub.scrub_work(store, corpus, recipe.scrub, recipe.is_transformed(corpus))
            case "signals":
                return quality.signals_work(store, corpus)
            case "languages":
                return quality.languages_work(store, corpus)
            case "quality":
                return quality.judge_work(store, corpus, recipe.quality)
            case "contamination" if recipe.decontamination:
                return decontamination.find_work(store, corpus, recipe.decontamination)
            case "signatures":
                tables = signatures.sources(store, corpus, recipe.removes_contaminated)
                return signatures.sign_work(corpus, tables, recipe.dedup)
        family, _, name = stage.partition("/")
        entry = next((entry for entry in recipe.quality.filters if entry.name == name), None)
        if family != keys.FILTERS or entry is None:
            raise StoreError(f"{keys.of_corpus(corpus, stage)} is not a stage of the recipe {recipe.name!r}")
        return filters.measure_work(store, corpus, Filter(entry))


def store_of(recipe: Recipe, written: Recipe | None = None) -> Store:
    """The store at GROUNDWORK_STORE, else the recipe's, else `store` in Dagster's home, as this recipe sees
    it.
    """
    return Store(default_store(recipe.store).root, RecipeVersions(recipe, written))


def _name(recipe: Recipe, written: Recipe) -> RecipeName:
    file, changes, variant = str(recipe.file), recipe.changes(written), recipe.variant
    own = [variant] if variant else []
    suffix = fingerprint([file, changes, *own])[:NAME_LENGTH]
    return RecipeName("-".join([recipe.name, *own, suffix]), file, changes, variant)
