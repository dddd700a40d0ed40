"""keep: pins a checkpoint, so that neither its training nor `retention` nor `gc` removes it."""

import argparse

from pipeline.cli.opening import whole_store
from pipeline.store.training_runs import CheckpointGoneError, run_named
from trainer.system.durable import write_atomically
from trainer.system.errors import TrainerError
from trainer.system.run_history import MODEL_NAMES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help=MODEL_NAMES)
    parser.add_argument("--no", action="store_true", help="unpin it, so that it may be removed again")


def run(options: argparse.Namespace) -> None:
    store = whole_store()
    history = run_named(store, options.checkpoint)
    try:
        checkpoint = history.newest_checkpoint
    except TrainerError as error:
        raise CheckpointGoneError(str(error)) from None
    keep = history.directory.keep
    store.files.pull(keep)
    pinned = history.directory.pinned() - {checkpoint.name} | (set() if options.no else {checkpoint.name})
    write_atomically(keep, "".join(f"{name}\n" for name in sorted(pinned)))
    store.files.push(keep)
    print(f"pinned in run {checkpoint.parents[1].name}: {', '.join(sorted(pinned)) or 'none'}")
