"""Finds the version of each key that a recipe means: the one that its settings made from the versions before.

Only two keys cannot be computed: what a source held when it was last read, and the frozen tokenizer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from pipeline.recipe.post_training import JOBS
from pipeline.recipe.recipe import Recipe
from pipeline.steps import stages
from pipeline.steps.mixture_search.search import MixtureSearch
from pipeline.steps.model.evaluate import Evaluation
from pipeline.steps.model.export import ExportedModel
from pipeline.steps.stage import Stage
from pipeline.steps.training.plan import PretrainedModel
from pipeline.store import keys, variant_names
from pipeline.store.fingerprint import fingerprint
from pipeline.store.keys import Key
from pipeline.store.last_versions import RecipeName
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError, default_store
from pipeline.store.work import Work

NAME_LENGTH = 8  # hex digits after the recipe's name


@dataclass(frozen=True)
class BaseModel(Stage):
    """The model that a section of `post_training` goes on with, as the recipe of that model makes it."""

    base: Recipe

    name = keys.BASE_MODEL
    made_within = keys.PRETRAINED_MODEL  # in the base's recipe

    @classmethod
    def all_of(cls, recipe: Recipe) -> Iterable[Self]:
        return [cls(recipe.base)] if recipe.base else []

    @property
    def deciding(self) -> Any:
        """All settings that decide the base's model, with those of the ones that it goes on with."""
        kinds = [kind for kind in (*stages.DATA_STAGES, *MODEL_STAGES) if kind is not Evaluation]
        return [stage.deciding for kind in kinds for stage in kind.all_of(self.base)]

    def work(self, store: Store) -> Version | Work:
        return _of_base(keys.PRETRAINED_MODEL, store, self.base)


@dataclass(frozen=True)
class BaseShards(Stage):
    """The token shards of the pretraining that a section of `post_training` reads again."""

    corpus: str
    base: Recipe

    name = "base_shards"
    made_within = keys.token_shards(keys.ANY_CORPUS)  # in the base's recipe

    @classmethod
    def all_of(cls, recipe: Recipe) -> Iterable[Self]:
        base = recipe.pretraining
        return [cls(corpus, base) for corpus in base.corpus_names] if recipe.rehearsal else []

    @property
    def deciding(self) -> Any:
        """The corpus: what decides its shards decides the base's model."""
        return self.corpus

    @property
    def key(self) -> Key:
        return keys.base_shards(self.corpus)

    def work(self, store: Store) -> Version | Work:
        return _of_base(keys.token_shards(self.corpus), store, self.base)


def _of_base(key: Key, store: Store, base: Recipe) -> Version:
    return Store(store.root, RecipeVersions(base)).current(key)


# A plan reads the stages of the data for its lineage, so these are here.
MODEL_STAGES: tuple[type[Stage], ...] = (
    MixtureSearch,
    BaseModel,
    BaseShards,
    PretrainedModel,
    Evaluation,
    ExportedModel,
)


class RecipeVersions:
    """The versions of `recipe`. `written`: the recipe without the changes that one run made to it."""

    def __init__(self, recipe: Recipe, written: Recipe | None = None):
        self.recipe = recipe
        self.name = _name(recipe, written or recipe)

    def find(self, store: Store, key: Key) -> Version | Work:
        """The version that the recipe means, or the work that would make it. Raises StoreError."""
        stage = self._stages.get(key)
        if stage is None:
            raise StoreError(f"{key} is not a stage of the recipe {self.recipe.name!r}")
        found = stage.work(store)
        return found if isinstance(found, Version) else store.existing(found) or found

    @cached_property
    def _stages(self) -> Mapping[Key, Stage]:
        models = {stage.key: stage for kind in MODEL_STAGES for stage in kind.all_of(self.recipe)}
        return {**stages.of_recipe(self.recipe), **models}

    asset = staticmethod(stages.asset_of)

    def job(self, key: Key) -> str:
        return "search_mixture" if key == keys.MIXTURE_SEARCH else JOBS.get(self.recipe.section, "pretrain")


def store_of(
    recipe: Recipe,
    written: Recipe | None = None,
    before_making: Callable[[], None] = lambda: None,
    records: bool = True,
) -> Store:
    """The store at GROUNDWORK_STORE, the recipe's, or `store` in Dagster's home, as the recipe sees it."""
    root, versions = default_store(recipe.store).root, RecipeVersions(recipe, written)
    return Store(root, versions, before_making=before_making, records=records)


def differing(recipes: Mapping[str, Recipe]) -> list[type[Stage]]:
    """The first asset whose settings, or what they go on with, differ between recipes, and what follows."""
    first, *others = recipes.values()
    for place, kind in enumerate(table()):
        ours = [stage.deciding for stage in kind.all_of(first)]
        if any(ours != [stage.deciding for stage in kind.all_of(other)] for other in others):
            return [kind for kind in table()[place:] if not kind.made_within]
    return []


def table() -> tuple[type[Stage], ...]:
    """The classes of all that follows from a recipe, in the order in which it is made."""
    return (*stages.all_stages(), *MODEL_STAGES)


def _name(recipe: Recipe, written: Recipe) -> RecipeName:
    file, changes, variant = str(recipe.file), recipe.changes(written), recipe.variant
    own = [variant] if variant else []
    suffix = fingerprint([file, changes, *own])[:NAME_LENGTH]
    directory = "-".join([recipe.name, *own, suffix]).replace(variant_names.OF, "-")
    return RecipeName(directory, file, changes, variant)
