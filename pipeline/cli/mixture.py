"""mixture: shows the mixture that the recipe's search proposes."""

import argparse
import shutil
import textwrap

from pipeline.cli.variant_option import add_variant, recipe_of

HELP = "Show the mixture that the recipe's `mixture.search` proposes, after the job `search_mixture`."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    from pipeline.reports import mixture_search as report
    from pipeline.steps.mixture_search import search
    from pipeline.steps.recipe_versions import store_of
    from pipeline.store import keys

    recipe = recipe_of(options)
    search.settings(recipe)
    store = store_of(recipe)
    found = search.found(store, recipe, store.current(keys.MIXTURE_SEARCH))
    print("\n".join(report.lines(found)))
    print(textwrap.fill(report.verdict(found), shutil.get_terminal_size().columns))
    print(f"\nTo try it, beside the recipe:\n{report.as_recipe(found)}")
