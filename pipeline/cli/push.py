"""push: uploads the exported model to the Hugging Face hub."""

import argparse
from pathlib import Path

from pipeline.cli.variant_option import add_variant, recipe_of
from pipeline.store import keys

HELP = "Upload the exported model with its card and lineage to the Hugging Face hub, as a private repository."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", metavar="OWNER/NAME", help="made if it does not exist")
    parser.add_argument(
        "--model",
        metavar="DIRECTORY",
        type=Path,
        help="an exported model; default: the recipe's, whose path `summary` prints",
    )
    add_variant(parser)
    parser.add_argument(
        "--public", action="store_true", help="make a new repository public, or publish to a public one"
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.steps.export.hub import push
    from pipeline.steps.recipe_versions import store_of

    model = options.model or store_of(recipe_of(options)).current(keys.EXPORTED_MODEL).directory()
    print(push(model, options.repository, options.public))
