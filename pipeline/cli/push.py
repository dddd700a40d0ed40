"""push: uploads the exported model to the Hugging Face hub."""

import argparse
from pathlib import Path

from pipeline.cli.opening import add_variant, opened
from pipeline.steps.export.hub import push
from pipeline.store import keys


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
    model = options.model or opened(options.variant)[1].current(keys.EXPORTED_MODEL).directory()
    print(push(model, options.repository, options.public))
