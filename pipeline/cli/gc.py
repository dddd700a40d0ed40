"""gc: lists or removes what nothing in the store needs: versions, old training runs and checkpoints."""

import argparse

from pipeline.cli.opening import UsageError, check_least, whole_store
from pipeline.recipe.loading import load_recipe, recipe_path
from pipeline.steps.forget import certificate
from pipeline.store.cleanup import gc
from pipeline.store.cleanup.holding_forgotten import delete, holding
from pipeline.store.cleanup.old_runs import Limits
from pipeline.store.forgotten import of_all, requests
from pipeline.store.store import Store
from trainer.system import terminal
from trainer.system.wording import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delete", action="store_true", help="remove it; without --delete, only list it")
    parser.add_argument(
        "--forgotten",
        action="store_true",
        help="instead: delete everything that holds documents that `forget` removed, in use or not, and "
        "Dagster's events about it",
    )
    add_keep(parser)


def add_keep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep",
        metavar="N",
        type=int,
        help="the newest N training runs of each recipe stay; default: `retention` of the recipe in use, "
        "which applies to the runs of that recipe",
    )


def limits(keep: int | None) -> Limits:
    """How many training runs stay."""
    recipe = load_recipe(recipe_path())
    if keep is None:
        return recipe.limits
    check_least("--keep", keep)
    return Limits(keep, needed=tuple(recipe.base_weights))


def run(options: argparse.Namespace) -> None:
    store = whole_store()
    if options.forgotten:
        if options.keep is not None:
            raise UsageError("--keep has no effect with --forgotten, which deletes whatever holds a document")
        _delete_forgotten(store)
        return
    with terminal.doing("looking for what nothing needs"):
        garbage = gc.find(store, limits(options.keep))
    with terminal.doing(f"removing {counted(len(garbage), 'versions and runs')}"):
        removed = gc.remove(store, garbage) if options.delete else garbage
    for item in garbage:
        note = "" if item in removed else ", not removed: a run has used it since, or a process works on it"
        print(f"{item.bytes / 1e6:>12,.1f} MB  {item.place}  {item.why}{note}")
    if store.files.keeps_removed():
        print(
            f"{store.files.place} keeps old versions: what is removed takes space until a lifecycle rule "
            "of the bucket (NoncurrentVersionExpiration) ends them"
        )
    total = f"{sum(item.bytes for item in removed) / 1e6:>12,.1f} MB"
    if not garbage:
        print("nothing to remove: everything is in use, recorded by a training run, or within the limit")
    elif options.delete:
        print(f"{total}  freed")
    else:
        print(f"{total}  in all; the same command with --delete frees it")
    if options.delete:
        store.files.abort_old_uploads()


def _delete_forgotten(store: Store) -> None:
    from pipeline.reports import events  # which imports Dagster

    asked = requests(store.files)
    if not asked:
        raise UsageError(
            "--forgotten: nothing was removed from this store; `python -m pipeline forget` does it"
        )
    gone, tokenizers = of_all(asked).among, any(one.retrain_tokenizer for one in asked)
    found = holding(store, gone, tokenizers)
    marks = certificate.deleting(store, found)
    delete(store, found)
    ended, going_on = events.forget(marks)
    pages = certificate.finish(store, ended, going_on, holding(store, gone, tokenizers))
    print(
        f"deleted {counted(len(found.versions), 'versions')}, {counted(len(found.runs), 'training runs')} "
        f"and the events of {counted(len(ended), 'runs')} of Dagster"
    )
    for run in going_on:
        print(f"not deleted: the events of Dagster's run {run[:8]}: repeat this once it has ended")
    for place in certificate.UNREACHED:
        print(f"not reached: {place}")
    for page in pages:
        print(f"certificate: {page}")
