"""summary: shows the newest model."""

import argparse

from pipeline.cli.opening import add_variant, opened
from pipeline.reports.summary import summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    recipe, store = opened(options.variant)
    print(summary(store, recipe.launch.usd_per_hour))
