"""push: uploads the exported model, or exported documents, to the Hugging Face hub."""

import argparse
from pathlib import Path

from pipeline.cli.opening import UsageError, add_model, chosen_model
from pipeline.steps.export.hub import push, push_documents
from trainer.system import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", metavar="OWNER/NAME", help="the repository, made if it does not exist")
    add_model(parser)
    parser.add_argument(
        "--data",
        metavar="OUT",
        type=Path,
        help="instead of a model, the documents that `export --format parquet -o OUT` wrote, as a data set",
    )
    parser.add_argument(
        "--public", action="store_true", help="make a new repository public, or publish to a public one"
    )


def run(options: argparse.Namespace) -> None:
    if options.data and (options.model or options.variant):
        raise UsageError("--data pushes documents: leave out --model and --variant")
    pushed, pushes = (options.data, push_documents) if options.data else (chosen_model(options).path, push)
    with terminal.doing(f"uploading {pushed}"):
        address = pushes(pushed, options.repository, options.public)
    print(address)
