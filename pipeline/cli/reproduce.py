"""reproduce: prints how to make a checkpoint again."""

import argparse
from pathlib import Path

from pipeline.cli.opening import UsageError, add_checkpoint, named_checkpoint, whole_store
from pipeline.recipe.loading import recipe_path
from pipeline.steps.reproduce import made_again, reproduce
from pipeline.store.training_runs import checkpoint_path
from trainer.system import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    parser.add_argument(
        "--compare",
        metavar="OUT",
        type=Path,
        help="say whether CHECKPOINT, one that was made again, is the one that OUT was "
        "written for: byte for byte, or by its losses if the machines round differently",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="OUT",
        type=Path,
        help="the directory to create for these files and the run; default: ./RUN-STEP",
    )


def run(options: argparse.Namespace) -> None:
    if options.compare:
        if options.checkpoint is None:
            raise UsageError("reproduce: --compare needs the CHECKPOINT that was made again")
        again = Path(options.checkpoint)
        if not again.exists():
            again = checkpoint_path(whole_store(), options.checkpoint)
        print(made_again.compare(options.compare, again))
        return
    if (options.checkpoint is None) == (options.variant is None):
        raise UsageError("reproduce: give either CHECKPOINT or --variant")
    store = whole_store()
    with terminal.doing("comparing the sources with the lineage"):
        found = named_checkpoint(store, options)
        out = options.out or Path(found.name)
        commands = reproduce.write(store, found, out=out, relative_to=recipe_path().parent.absolute())
    print("\n".join(commands))
