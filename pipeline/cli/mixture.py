"""mixture: shows the mixture that the recipe's search proposes."""

import argparse
import shutil
import textwrap

from pipeline.cli.opening import add_variant, opened
from pipeline.reports import mixture_search, tables
from pipeline.steps.mixture_search import search
from pipeline.store import keys
from trainer.system import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    recipe, store = opened(options.variant)
    with terminal.doing("fitting a law to the runs"):
        result = search.result(store, recipe, store.current(keys.MIXTURE_SEARCH))
    print("\n".join(tables.lines(mixture_search.rows(result))))
    print(textwrap.fill(mixture_search.verdict(result), shutil.get_terminal_size().columns))
    print(f"\nTo try it, beside the recipe:\n{mixture_search.as_recipe(result)}")
