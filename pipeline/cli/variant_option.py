"""--variant: which variant of the recipe a command is about."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.recipe.recipe import Recipe


def add_variant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variant", metavar="V", help="a variant of the recipe; default: the recipe as it is written"
    )


def recipe_of(options: argparse.Namespace) -> "Recipe":
    """The recipe in use, or the variant of it that was asked for. Raises RecipeError."""
    from pipeline.recipe import variants
    from pipeline.recipe.recipe import BASE, recipe_path

    return variants.load(recipe_path(), options.variant or BASE)


def last_checkpoint(options: argparse.Namespace) -> str:
    """The name of the final checkpoint of the model of a variant. Raises StoreError before it is trained."""
    from pipeline.steps.recipe_versions import store_of
    from pipeline.steps.training import plan
    from pipeline.store import keys
    from pipeline.store.training_runs import checkpoint_name

    store = store_of(recipe_of(options))
    return checkpoint_name(plan.result(store, store.current(keys.PRETRAINED_MODEL))["checkpoint"])
