"""The option --recipe: which commands take it, where it may stand, and what it does."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

# Commands that use no recipe, and `corpora`, to which --recipe means more.
ON_FILES = {"scrub", "quality", "dedup", "train-tokenizer", "tokenize"}
OWN_RECIPE = {"start", "init", "corpora", "recipe", *ON_FILES}


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's subcommands, by their names."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Lets a command take a recipe, before and after the name of a subcommand."""
    for one in (parser, *subparsers(parser).values()):
        one.add_argument(
            "--recipe",
            metavar="R",
            default=argparse.SUPPRESS,  # so that a subcommand does not undo what stands before its name
            help="a path, or the name of a recipe that ships; default: GROUNDWORK_RECIPE, or `default`",
        )


@contextmanager
def using_recipe(recipe: str | None) -> Iterator[None]:
    """Makes a recipe that of this command and of all that it starts."""
    if recipe is None:
        yield
        return
    from pipeline.recipe.loading import RECIPE_VARIABLE, recipe_path

    before = os.environ.get(RECIPE_VARIABLE)
    os.environ[RECIPE_VARIABLE] = str(recipe_path(recipe).absolute())
    try:
        yield
    finally:
        if before is None:
            del os.environ[RECIPE_VARIABLE]
        else:
            os.environ[RECIPE_VARIABLE] = before


def command_first(arguments: list[str]) -> list[str]:
    """`--recipe R` behind the command, where a person has written it before the command."""
    if arguments[:1] != ["--recipe"] or len(arguments) < 3:
        return arguments
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[2:end], *arguments[:2], *arguments[end:]]
