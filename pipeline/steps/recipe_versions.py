"""Finds the version of each key that a recipe means: the one that its settings made from the versions before.

Only two keys cannot be computed: what a source held when it was last read, and the frozen tokenizer.
"""

from collections.abc import Mapping
from functools import partial

from pipeline.recipe.recipe import Recipe
from pipeline.steps import stages
from pipeline.steps.mixture_search import search
from pipeline.steps.model import evaluate, export
from pipeline.steps.stage import Stage
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.fingerprint import fingerprint
from pipeline.store.last_versions import RecipeName
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError, default_store
from pipeline.store.work import Work

NAME_LENGTH = 8  # hex digits after the recipe's name


def _of_base(key: str, store: Store, base: Recipe) -> Version | Work:
    """What the recipe that this one goes on with has under `key`, or the one before it."""
    while key != keys.PRETRAINED_MODEL and base.base:
        base = base.base
    return RecipeVersions(base).find(Store(store.root, RecipeVersions(base)), key)


# The table goes on where the data ends. A plan reads the DATA_STAGES for its lineage, so these rows are here.
MODEL_STAGES = (
    Stage(
        keys.BASE_MODEL,
        partial(_of_base, keys.PRETRAINED_MODEL),
        lambda recipe: [recipe.base],
        wanted=lambda recipe: recipe.base is not None,
    ),
    Stage(
        keys.base_shards("{corpus}"),
        lambda store, corpus, base: _of_base(keys.token_shards(corpus), store, base),
        lambda recipe, corpus: [recipe.base],
        wanted=lambda recipe, corpus: bool(recipe.rehearsal),
    ),
    Stage(keys.MIXTURE_SEARCH, search.search_work, lambda recipe: [recipe], decisive=lambda recipe: None),
    Stage(keys.PRETRAINED_MODEL, plan.plan_work, lambda recipe: [recipe], decisive=plan.decisive),
    Stage(
        keys.EVALUATION,
        evaluate.evaluate_work,
        lambda recipe: [recipe],
        decisive=lambda recipe: (recipe.training.samples, recipe.evaluation),
    ),
    Stage(keys.EXPORTED_MODEL, export.export_work),
)


class RecipeVersions:
    """The versions of `recipe`. `written`: the recipe without the changes that one run made to it."""

    def __init__(self, recipe: Recipe, written: Recipe | None = None):
        self.recipe = recipe
        self.name = _name(recipe, written or recipe)

    def find(self, store: Store, key: str) -> Version | Work:
        """As `Wanted` says. Raises StoreError also when the recipe has no such stage."""
        stage, names = row_of(key)
        if stage is None or not stage.wanted(self.recipe, *names):
            raise StoreError(f"{key} is not a stage of the recipe {self.recipe.name!r}")
        found = stage.work(store, *names, *stage.settings(self.recipe, *names))
        return found if isinstance(found, Version) else store.find(found) or found

    asset = staticmethod(stages.asset_of)


def store_of(recipe: Recipe, written: Recipe | None = None) -> Store:
    """The store at GROUNDWORK_STORE, else the recipe's, else `store` in Dagster's home, as this recipe sees
    it.
    """
    return Store(default_store(recipe.store).root, RecipeVersions(recipe, written))


def differing(recipes: Mapping[str, Recipe]) -> list[Stage]:
    """The first asset whose settings are not the same in all recipes, and all that follow it."""
    first, *others = recipes.values()
    for place, stage in enumerate(table()):
        if any(stage.deciding(other) != stage.deciding(first) for other in others):
            return [stage for stage in table()[place:] if stages.is_asset(stage.key)]
    return []


def table() -> tuple[Stage, ...]:
    """The rows of all that follows from a recipe, in the order in which it is made."""
    return (stages.EVALUATION_TEXTS, *stages.DATA_STAGES, stages.TOKEN_INDEX, *MODEL_STAGES)


def row_of(key: str) -> tuple[Stage | None, tuple[str, ...]]:
    """The row of a key, and the names in it; no row for a key that a recipe does not decide."""
    return stages.row_of(key, table())


def _name(recipe: Recipe, written: Recipe) -> RecipeName:
    file, changes, variant = str(recipe.file), recipe.changes(written), recipe.variant
    own = [variant] if variant else []
    suffix = fingerprint([file, changes, *own])[:NAME_LENGTH]
    return RecipeName("-".join([recipe.name, *own, suffix]), file, changes, variant)
