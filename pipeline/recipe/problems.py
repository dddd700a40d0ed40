"""Says what is wrong with a recipe."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline.plugins.settings import FILTER_KINDS
from pipeline.stages.bpe import KINDS
from trainer.config.problems import requirement

UNWRITTEN = (*KINDS, *FILTER_KINDS)
MISSING = ("missing", "union_tag_not_found")  # kinds of pydantic's errors


def explained(error: ValidationError) -> str:
    """Each setting with what is wrong with it, in one line."""
    # A default that depends on an invalid setting is no mistake of its own.
    problems = [one for one in error.errors() if one["type"] != "default_factory_not_called"]
    # A list with an invalid item is also reported as too short: only the innermost place matters.
    places = [problem["loc"] for problem in problems]
    innermost = [
        one
        for one in problems
        if not any(place[: len(one["loc"])] == one["loc"] != place for place in places)
    ]
    # What is wrong with the rules of the recipe is wrong, too, with those of a corpus that changes them.
    said = {(one["loc"], one["msg"]) for one in problems}
    own = (
        one for one in innermost if one["loc"][:1] != ("corpora",) or (one["loc"][2:], one["msg"]) not in said
    )
    return "; ".join(map(_explain_one, own))


def _explain_one(problem: ErrorDetails) -> str:
    where = ".".join(str(step) for step in problem["loc"] if step not in UNWRITTEN) or "the recipe"
    kind = problem["type"]
    if kind.startswith("union_tag"):
        where += ".kind"
    return f"{where} is missing" if kind in MISSING else f"{where}: {requirement(problem)}"
