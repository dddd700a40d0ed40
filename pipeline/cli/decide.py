"""decide: says whether a variant of the recipe is better than another one."""

import argparse
import contextlib
import json
import math
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from pipeline.cli import variants
from pipeline.cli.opening import UsageError, add_section, check_known, differing_in
from pipeline.recipe.post_training import JOBS
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.variants import decisive
from pipeline.reports import tables, variant_arms, verdict, verdict_text
from pipeline.steps.lineage import source_state
from pipeline.steps.model.benchmark import AskedBenchmark
from pipeline.steps.recipe_versions import store_of
from pipeline.store import keys
from pipeline.store.variant_names import BASE, families
from trainer.system import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="the variant to compare with, `base` for the recipe itself, and those that may be better; "
        "default: base and all others",
    )
    parser.add_argument(
        "--difference",
        metavar="BITS",
        type=float,
        default=0.004,
        help="the smallest difference that matters, in bits per byte; default: %(default)s",
    )
    add_section(parser)
    parser.add_argument("--run", action="store_true", help="first train the seeds that are missing")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    if not 0 < options.difference < math.inf:
        raise UsageError(f"--difference {options.difference:g}: must be above 0")
    recipes = differing_in(options.section, options.names)
    known = list(families(recipes))
    check_known("variants", options.names, known)
    base, *others = options.names or known
    others = list(dict.fromkeys(others)) or [name for name in known if name != base]
    if base in others:
        raise UsageError(f"{base} is compared with itself: name it once")
    if options.run:
        controls = [name for name in known if recipes[name].training.control]
        judged_by = [BASE, *controls] if controls else []  # a control must lose to the recipe
        try:
            _train(recipes, list(dict.fromkeys([base, *others, *judged_by])), options.section)
        except variants.VariantsError:
            with contextlib.suppress(variant_arms.DecideError):
                _show(options, recipes, base, others)
            raise
    _show(options, recipes, base, others)


def _show(
    options: argparse.Namespace, recipes: Mapping[str, Recipe], base: str, others: Sequence[str]
) -> None:
    """Prints the verdicts on the runs that have ended."""
    compared_on, arms = _scored(recipes)
    verdicts = {one.theirs: one for one in verdict.against(compared_on, arms, base)}
    controls = verdict.against(compared_on, arms, BASE)
    shown = [verdicts[name] for name in others]
    if options.json:
        print(json.dumps([{**asdict(one), "word": one.word} for one in shown], indent=1))
        return
    columns = shutil.get_terminal_size().columns
    for one in shown:
        if one.total:
            print("\n".join(tables.lines(verdict_text.rows(one))))
        told = f"{verdict_text.sentence(one)} {verdict_text.advice(one, arms, options.difference)}"
        print(textwrap.fill(told, columns), end="\n\n")
    quoted = {verdict_text.quoted(recipes[name]) for name in [base, *others]} - {""}
    for text in (verdict_text.control(arms, controls), *sorted(quoted), verdict_text.EXPLAINED):
        print(textwrap.fill(text, columns))


def _scored(recipes: Mapping[str, Recipe]) -> tuple[list[AskedBenchmark], dict[str, variant_arms.Arm]]:
    """What the variants are compared on, and the scores of the runs that have ended."""
    with terminal.doing("reading the scores of the runs"):
        compared_on = variant_arms.measures(recipes)
        variant_arms.score_answers(recipes, compared_on)
        return compared_on, variant_arms.arms(recipes, compared_on)


def _train(recipes: Mapping[str, Recipe], names: Sequence[str], section: str) -> None:
    """Trains and evaluates the seeds that have not ended. Once a source has changed, it does so with all
    seeds: those that read what the source holds now have nothing to do. Raises VariantsError, and DecideError
    where more training would not lead to a verdict.
    """
    try:
        _, arms = _scored(recipes)
        if lost := arms[names[0]].lost:
            raise variant_arms.DecideError(
                f"{names[0]}: its tokenizer does not give back {lost}, so nothing can be compared with it: "
                "take a tokenizer that gives text back, or compare other variants"
            )
        missing = [seed for name in names for seed in arms[name].missing]
        ended = [name for name in names if arms[name].ended]
        if variant_arms.changed_between([arms[name] for name in names]) or (
            missing and any(_has_changed(recipes[name]) for name in ended)
        ):
            missing = [seed for name in names for seed in (*arms[name].ended, *arms[name].missing)]
    except variant_arms.NothingScoredError:
        # The tokenizer is made of the text of the recipe itself, not of a variant's.
        missing = [BASE, *(seed for name in names for seed in families(recipes)[name] if seed != BASE)]
    if section and missing:
        _pretrain(recipes, missing)
    if missing:
        variants.run_jobs(missing, JOBS.get(section, "pretrain"))


def _pretrain(recipes: Mapping[str, Recipe], names: Sequence[str]) -> None:
    """Trains the models that sections of these variants go on with, where they are missing, each once."""
    first: dict[str, str] = {}
    made_by = {name: first.setdefault(decisive(recipe.pretraining), name) for name, recipe in recipes.items()}
    stores = {made_by[name]: store_of(recipes[made_by[name]].pretraining) for name in names}
    if missing := [name for name in stores if not stores[name].current_or_none(keys.PRETRAINED_MODEL)]:
        variants.run_jobs(missing, "pretrain")


def _has_changed(recipe: Recipe) -> bool:
    """Whether a source holds other text now: one of the recipe's corpora, or of those of the model that it
    goes on with.
    """
    observed = source_state.observe_all(store_of(recipe), recipe)
    changed = any(one.state is source_state.State.OUTDATED for one in observed)
    return changed or bool(recipe.base and _has_changed(recipe.base))
