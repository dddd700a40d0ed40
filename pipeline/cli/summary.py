"""summary: shows the newest model."""

import argparse

from pipeline.cli.variant_option import add_variant, recipe_of

HELP = "Show the path of the newest model, its scores, two samples, and how to open the UI."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    from pipeline.reports.summary import summary
    from pipeline.steps.recipe_versions import store_of

    recipe = recipe_of(options)
    print(summary(store_of(recipe), recipe.launch.usd_per_hour))
