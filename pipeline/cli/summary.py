"""summary: shows the newest model."""

import argparse

HELP = "Show the path of the newest model, its scores, two samples, and how to open the UI."


def add_arguments(_: argparse.ArgumentParser) -> None:
    """`summary` takes no arguments."""


def run(_: argparse.Namespace) -> None:
    from pipeline.recipe.recipe import load_recipe, recipe_path
    from pipeline.reports.summary import summary
    from pipeline.steps.recipe_versions import store_of

    print(summary(store_of(load_recipe(recipe_path()))))
