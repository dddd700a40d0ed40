"""Options of several subcommands: what a question is about, and which documents are drawn to answer it."""

import argparse
from dataclasses import dataclass
from functools import partial

from pipeline.cli.opening import UsageError, check_known, opened
from pipeline.recipe.recipe import Recipe
from pipeline.reports.rejections import Draw
from pipeline.store.store import Store


@dataclass(frozen=True)
class Subject:
    """The recipe or a variant of it, its store, and the corpora that are looked at."""

    recipe: Recipe
    store: Store
    corpora: list[str]


def subject(options: argparse.Namespace) -> Subject:
    """Raises RecipeError for an unknown variant and UsageError for an unknown corpus."""
    recipe, store = opened(options.variant)
    corpora = [options.corpus] if options.corpus is not None else recipe.corpus_names
    check_known("--corpus", corpora, recipe.corpus_names)
    return Subject(recipe, store, corpora)


def add_draw(parser: argparse.ArgumentParser) -> None:
    number = partial(parser.add_argument, metavar="N", type=int)
    number("--limit", default=10, help="how many documents to show; default: %(default)s")
    number("--seed", default=0, help="another number draws other documents; default: %(default)s")


def chosen_draw(options: argparse.Namespace) -> Draw:
    for option, least in (("limit", 1), ("seed", 0)):
        if (given := getattr(options, option)) < least:
            raise UsageError(f"--{option} {given}: must be at least {least}")
    return Draw(options.limit, options.seed)
