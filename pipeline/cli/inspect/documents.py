"""inspect documents: documents at random that a rule rejected, removed or changed, with the evidence."""

import argparse
import difflib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc

from pipeline.cli.inspect.options import Subject, add_draw, chosen_draw
from pipeline.cli.opening import UsageError
from pipeline.recipe.recipe import Recipe
from pipeline.reports import entries, rejections
from pipeline.reports.rejections import KEPT, Draw
from pipeline.stages import edits
from pipeline.stages.quality import RULES
from pipeline.steps.corpus.filters import failed_rule
from pipeline.store import keys

DUPLICATES = ("exact", "near")
CONTAMINATED = "contaminated"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rule",
        metavar="RULE",
        help="show documents of this quality rule or filter of your own (FILTER.error: where it raised), and "
        "half as many kept ones; or of `kept`, `exact`, `near` or `contaminated`; or what a rule of `edits` "
        "cut, such as `policy` or `repeated_line`",
    )
    add_draw(parser)


def lines(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    rule, draw = options.rule, chosen_draw(options)
    _check(subject.recipe, rule)
    shown = 0
    for entry in _entries(subject, rule, draw):
        shown += 1
        yield f"{entry}\n"
    if not shown:
        yield f"{rule}: no document of {', '.join(subject.corpora)}"
    elif rule not in (*DUPLICATES, CONTAMINATED, KEPT, *edits.NAMES):
        yield "kept, at random:\n"
        yield from _kept_beside(subject, rule, replace(draw, size=(shown + 1) // 2))


def _check(recipe: Recipe, rule: str) -> None:
    """Raises UsageError unless there can be documents of this rule."""
    own = recipe.filter_names
    known = [*RULES, *own, *map(failed_rule, own), *DUPLICATES, CONTAMINATED, KEPT, *edits.NAMES]
    if rule not in known:
        (nearest,) = difflib.get_close_matches(rule, known, n=1, cutoff=0)
        raise UsageError(
            f"RULE: unknown {rule!r}; choose from {', '.join(known)}, "
            f"as in `python -m pipeline inspect documents {nearest}`"
        )
    if rule == CONTAMINATED and not recipe.decontamination:
        raise UsageError("contaminated: nothing was searched for: set `decontamination` and run `corpus`")


def _entries(subject: Subject, rule: str, draw: Draw) -> Iterator[str]:
    """Documents that `rule` rejected or removed, or that are kept."""
    recipe, store, corpora = subject.recipe, subject.store, subject.corpora
    which = pc.field("rule") == rule
    if rule in DUPLICATES:
        decisions = rejections.stored(store, [""], lambda _: keys.DEDUP, "decisions")
        removed = (one for one in decisions if keys.DecidedPart.from_name(one[0][1]).corpus in corpora)
        drawn = [row for _, rows in draw.rows(removed, pc.field("reason") == rule) for row in rows]
        return entries.duplicates(store, recipe.corpus_names, drawn)
    if rule == CONTAMINATED:
        tables = rejections.stored(store, corpora, keys.contamination, "contamination")
        which, shown = pc.field("quote"), partial(entries.quoting, store)
    elif rule in edits.NAMES:
        tables = rejections.stored(store, filter(recipe.is_edited, corpora), keys.edited, "cuts")
        shown = partial(entries.cut, recipe)
    else:
        tables, shown = rejections.verdicts(store, corpora), partial(entries.judged, store)
        which = pc.field("keep") if rule == KEPT else which
    return (entry for place, rows in draw.rows(tables, which) for entry in shown(place, rows))


def _kept_beside(subject: Subject, rule: str, draw: Draw) -> Iterator[str]:
    """Kept documents, with what `rule` judges them by."""
    for place, rows in draw.rows(rejections.verdicts(subject.store, subject.corpora), pc.field("keep")):
        kept = [row | {"rule": rule} for row in rows]
        yield from (f"{entry}\n" for entry in entries.judged(subject.store, place, kept))
