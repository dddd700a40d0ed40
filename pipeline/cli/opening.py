"""What a command is about: the recipe or one of its variants, its store, a checkpoint in it."""

import argparse
from collections.abc import Iterable

from pipeline.recipe import variants
from pipeline.recipe.recipe import BASE, Recipe, recipe_path, stored_at
from pipeline.steps.lineage.checkpoints import Checkpoint, checkpoint
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store, default_store
from pipeline.store.training_runs import checkpoint_name


class UsageError(PipelineError):
    """An option has an unknown or impossible value."""


def add_variant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variant", metavar="V", help="a variant of the recipe; default: the recipe as it is written"
    )


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", help="its directory, or its name in the UI: RUN-STEP"
    )
    parser.add_argument(
        "--variant", metavar="V", help="instead: the last checkpoint of a variant of the recipe, or of `base`"
    )


def opened(variant: str | None = None, recipe: str | None = None) -> tuple[Recipe, Store]:
    """The recipe in use, or the one that is named, as it is written or as a variant; and the store, in which
    each key has the version that follows from it. Raises RecipeError.
    """
    found = variants.load(recipe_path(recipe), variant or BASE)
    return found, store_of(found)


def whole_store() -> Store:
    """The store in use, whatever recipe its versions belong to."""
    return default_store(stored_at())


def named_checkpoint(store: Store, options: argparse.Namespace) -> Checkpoint:
    """The checkpoint that was named, or the last one of a variant. Raises PipelineError."""
    if options.checkpoint:
        return checkpoint(store, options.checkpoint)
    _, own = opened(options.variant)
    model = plan.result(own, own.current(keys.PRETRAINED_MODEL))
    return checkpoint(store, checkpoint_name(model["checkpoint"]))


def check_known(option: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises UsageError for the first of `names` that is not `known`."""
    known = list(known)
    for name in names:
        if name not in known:
            raise UsageError(f"{option}: unknown {name!r}; choose from {', '.join(known)}")
