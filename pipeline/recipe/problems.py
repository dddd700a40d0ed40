"""Says what is wrong with a recipe."""

import re
from collections.abc import Callable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline.plugins.settings import FILTER_KINDS
from pipeline.stages.bpe import KINDS
from trainer.config.problems import requirement

UNWRITTEN = (*KINDS, *FILTER_KINDS)
MOST_PLACES = 3  # of a setting, where more say nothing
_UNKNOWN_KEY = re.compile(r"unknown key '(\w+)': ")


def explained(error: ValidationError, places: Callable[[str], list[str]] = lambda name: []) -> str:
    """Each setting with what is wrong with it, in one line. `places` returns the paths of all settings with
    a name.
    """
    # A default that depends on an invalid setting is no mistake of its own.
    problems = [one for one in error.errors() if one["type"] != "default_factory_not_called"]
    # A list with an invalid item is also reported as too short: only the innermost place matters.
    located = [problem["loc"] for problem in problems]
    innermost = [
        one
        for one in problems
        if not any(place[: len(one["loc"])] == one["loc"] != place for place in located)
    ]
    # What is wrong with the rules of the recipe is wrong, too, with those of a corpus that changes them.
    said = {(one["loc"], one["msg"]) for one in problems}
    own = (
        one for one in innermost if one["loc"][:1] != ("corpora",) or (one["loc"][2:], one["msg"]) not in said
    )
    return "; ".join(_explain_one(one, places) for one in own)


def _explain_one(problem: ErrorDetails, places: Callable[[str], list[str]]) -> str:
    written = (str(step) for step in problem["loc"] if step not in UNWRITTEN)
    where = ".".join(written).removesuffix(".[key]") or "the recipe"  # a name that is wrong stands before it
    kind = problem["type"]
    if kind.startswith("union_tag"):
        where += ".kind"
    if kind == "union_tag_not_found":
        section = re.sub(r"\.\d+|\.kind$", "", where)
        return f"{where} is missing: `python -m pipeline recipe --explain {section}` lists the kinds"
    if kind == "missing":
        return f"{where} is missing"
    said = requirement(problem)
    # A setting of this name elsewhere is meant rather than one here with a name like it.
    if (unknown := _UNKNOWN_KEY.match(said)) and 0 < len(found := places(unknown[1])) <= MOST_PLACES:
        meant = f"did you mean {' or '.join(map(repr, found))}?"
        said = unknown[0] + (meant if found != [unknown[1]] else "it belongs at the top of the recipe")
    return f"{where}: {said}"
