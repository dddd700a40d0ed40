"""push: uploads the exported model to the Hugging Face hub."""

import argparse

from pipeline.cli.opening import add_model, chosen_model
from pipeline.steps.export.hub import push
from trainer.system import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", metavar="OWNER/NAME", help="made if it does not exist")
    add_model(parser)
    parser.add_argument(
        "--public", action="store_true", help="make a new repository public, or publish to a public one"
    )


def run(options: argparse.Namespace) -> None:
    model = chosen_model(options).path
    with terminal.doing(f"uploading {model}"):
        address = push(model, options.repository, options.public)
    print(address)
