"""reproduce: prints how to make a checkpoint again."""

import argparse
from pathlib import Path

from pipeline.cli.plain_files import UsageError
from pipeline.cli.variant_option import last_checkpoint

HELP = "Print the commands that make a checkpoint again, byte for byte, and write the files they need."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", help="its directory, or its name in the UI: RUN-STEP"
    )
    parser.add_argument(
        "--variant", metavar="V", help="instead: the last checkpoint of a variant of the recipe, or of `base`"
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="OUT",
        type=Path,
        help="the directory to create for these files and the run; default: ./RUN-STEP",
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.recipe.recipe import recipe_path, stored_at
    from pipeline.steps.lineage import reproduce
    from pipeline.steps.lineage.checkpoints import checkpoint
    from pipeline.store.store import default_store

    store = default_store(stored_at())
    if (options.checkpoint is None) == (options.variant is None):
        raise UsageError("reproduce: give either CHECKPOINT or --variant")
    found = checkpoint(store, options.checkpoint or last_checkpoint(options))
    out = options.out or Path(found.name)
    print("\n".join(reproduce.write(store, found, out, recipe_path().parent.absolute())))
