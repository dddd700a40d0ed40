"""gc: lists or removes the stored versions that nothing uses any more, or old training runs."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.store.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.store.cleanup.gc import Garbage
    from pipeline.store.store import Store


class UnboundedError(PipelineError):
    """Neither the command nor the recipe says how many runs to keep."""


HELP = "List stored versions that nothing uses any more, or old training runs; with --delete remove them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--delete", action="store_true", help="remove them; without it, only list them and their sizes"
    )
    what.add_argument("--dry-run", action="store_true", help="only list them, as without --delete")
    parser.add_argument(
        "--runs",
        action="store_true",
        help="training runs with their evaluations and exports, instead of stored versions",
    )
    parser.add_argument(
        "--keep",
        metavar="N",
        type=int,
        help="with --runs: the newest N of each recipe stay; default: the recipe's retention.runs",
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.recipe.recipe import stored_at
    from pipeline.store.cleanup import gc as garbage
    from pipeline.store.store import default_store

    store = default_store(stored_at())
    if options.runs:
        _runs(store, options.keep, options.delete)
        return
    if options.keep is not None:
        raise UnboundedError("gc: --keep is for training runs: give --runs, too")
    unused = garbage.find(store)
    for version in unused:
        print(f"{_megabytes([version])}  {version.path.relative_to(store.root)}")
    if not unused and not options.delete:
        print("nothing to remove: every version is in use or recorded by a training run")
    elif not options.delete:
        print(f"{_megabytes(unused)}  in {len(unused)} versions; `python -m pipeline gc --delete` frees it")
    else:
        removed = garbage.remove(store, unused)
        print(f"{_megabytes(removed)}  freed")
        for version in unused:
            if version not in removed:
                print(f"not removed, because a run has used it since: {version.path.relative_to(store.root)}")


def _runs(store: "Store", keep: int | None, delete: bool) -> None:
    from pipeline.recipe.recipe import load_recipe, recipe_path
    from pipeline.store.cleanup import disk, retention

    recipe = load_recipe(recipe_path())
    # The recipe's own limit is for its own runs.
    only = recipe.name if keep is None else None
    keep = recipe.retention.runs if keep is None else keep
    if keep is None or keep < 1:
        raise UnboundedError(
            "gc --runs: give --keep N, at least 1, or set retention.runs in the recipe: how many stay"
        )
    old = retention.removable(store, keep, only, recipe.base_weights)
    total = 0
    for found in old:
        size = disk.bytes_below(found.paths)
        removed = delete and retention.remove(store, found)
        total += size if removed or not delete else 0
        note = "" if removed or not delete else ", not removed: a process works on it"
        print(f"{size / 1e6:>12,.1f} MB  {found.name}  recipe {found.recipe}, {found.state}{note}")
    if not old:
        print(f"nothing to remove: each recipe has {keep} or fewer runs that nothing else needs")
    elif delete:
        print(f"{total / 1e6:>12,.1f} MB  freed; `python -m pipeline gc` finds data that only they named")
    else:
        print(f"{total / 1e6:>12,.1f} MB  in {len(old)} runs; the same command with --delete frees it")


def _megabytes(versions: "Sequence[Garbage]") -> str:
    return f"{sum(version.bytes for version in versions) / 1e6:>12,.1f} MB"
