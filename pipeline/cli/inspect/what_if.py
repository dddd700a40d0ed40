"""inspect what-if: what the rules would reject with other settings, by what has been measured."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pipeline.cli.inspect.options import Subject, add_draw, chosen_draw
from pipeline.cli.opening import UsageError
from pipeline.plugins.filters import Filter
from pipeline.recipe import variants
from pipeline.recipe.loading import recipe_path
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.reports.disagreements import Comparison, Judging
from pipeline.stages.quality import QualityParams
from pipeline.steps.corpus.quality import Quality
from pipeline.store.variant_names import BASE
from trainer.config.run import override
from trainer.system.errors import TrainerError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("changes", metavar="SETTING=VALUE", nargs="+", help="another setting of `quality`")
    add_draw(parser)


def lines(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    """Raises UsageError where more would have to be measured."""
    draw, changed = chosen_draw(options), _changed(subject, options.changes)
    rules = {name: changed.rules(name).quality for name in subject.corpora}
    used = {name: subject.recipe.rules(name).quality for name in rules}
    if any(
        _measured(new) != _measured(used[name]) or (new.detects and not used[name].detects)
        for name, new in rules.items()
    ):
        raise UsageError(
            "what-if: this needs languages or filters that have not been measured: set them in a variant, "
            "run the job `corpus` for it, and write `python -m pipeline inspect against VARIANT`"
        )

    def judge(corpus: str, part: str) -> pa.Table:
        return Quality(corpus, rules[corpus]).judged_again(subject.store, part)

    now, then = Judging("now", "rule"), Judging("then", "then")
    return Comparison(subject.store, subject.corpora, judge, now, then, draw).lines()


def _changed(subject: Subject, changes: Sequence[str]) -> Recipe:
    """The recipe with these settings in place of those that it has for all corpora and for each. A section
    of `post_training` has settings for each corpus only.
    """
    path, section = recipe_path(), subject.recipe.section
    given: dict[str, Any] = {}
    place_of_section = f"post_training.{section}." if section else ""
    places = [f"{place_of_section}corpora.{name}." for name in subject.corpora]
    try:
        for change in changes:
            if "=" not in change:
                raise UsageError(f"what-if: {change!r} has no value: write {change}=VALUE")
            for place in (*places, *([] if section else [""])):
                override(given, f"{place}quality.{change}")
        return variants.load(path, subject.recipe.variant or BASE, given)
    except (TrainerError, RecipeError) as error:
        raise UsageError(f"what-if: {str(error).removeprefix(f'{path}: ')}") from None


def _measured(rules: QualityParams) -> Any:
    """What is measured for rules."""
    own = [(one.name, one.python, one.version, Filter(one).measured_with) for one in rules.filters]
    return own, rules.language_file
