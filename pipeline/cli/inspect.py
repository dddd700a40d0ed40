"""inspect: what quality rejects now, with other settings or in a variant; documents, with the evidence."""

import argparse
import difflib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cli.opening import UsageError, add_variant, check_known, check_least, opened
from pipeline.plugins.filters import Filter
from pipeline.recipe import variants
from pipeline.recipe.loading import recipe_path
from pipeline.recipe.post_training import JOBS
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.reports import disagreements, entries, rejections, tables
from pipeline.reports.disagreements import Judging
from pipeline.reports.rejections import KEPT, Draw
from pipeline.stages import edits
from pipeline.stages.quality import RULES, QualityParams
from pipeline.steps.corpus.filters import failed_rule
from pipeline.steps.corpus.quality import Quality
from pipeline.store import keys, variant_names
from pipeline.store.store import Store, StoreError
from pipeline.store.variant_names import BASE
from trainer.config.run import override
from trainer.system import terminal
from trainer.system.errors import TrainerError

ABOUT = {
    "counts": "Count the documents that are kept, and those that each rule rejects. This is the default.",
    "documents": "Show documents at random that a rule rejected, removed or changed, or that are kept.",
    "what-if": "Count what each rule would reject with other settings, and show documents that change.",
    "against": "Count what each rule rejects in a variant; show documents that only one of the two keeps.",
}
DUPLICATES = ("exact", "near")
CONTAMINATED = "contaminated"


@dataclass(frozen=True)
class Subject:
    """The recipe or a variant of it, its store, and the corpora that are looked at."""

    recipe: Recipe
    store: Store
    corpora: list[str]


def completed(arguments: Sequence[str]) -> list[str]:
    """What follows `inspect`, with `counts` where no subcommand comes first."""
    is_complete = arguments and arguments[0] in (*ABOUT, "-h", "--help")
    return [*arguments] if is_complete else ["counts", *arguments]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    views = parser.add_subparsers(dest="view", title="subcommands", metavar="SUBCOMMAND", required=True)
    counts, documents, what_if, against = (
        views.add_parser(name, help=about, description=about) for name, about in ABOUT.items()
    )
    counts.add_argument("--by", choices=["language"], help="count the kept documents of each language")
    documents.add_argument(
        "rule",
        metavar="RULE",
        help="show documents of this quality rule or filter of your own (FILTER.error: where it raised), and "
        "half as many kept ones; or of `kept`, `exact`, `near` or `contaminated`; or what a rule of `edits` "
        "cut, such as `policy` or `repeated_line`",
    )
    what_if.add_argument("changes", metavar="SETTING=VALUE", nargs="+", help="another setting of `quality`")
    against.add_argument("against", metavar="V", help="a variant of the recipe, or `base`")
    for view in (documents, what_if, against):
        number = partial(view.add_argument, metavar="N", type=int)
        number("--limit", default=10, help="how many documents to show; default: %(default)s")
        number("--seed", default=0, help="another number draws other documents; default: %(default)s")
    for view in (counts, documents, what_if, against):
        add_variant(view)
        view.add_argument("--corpus", metavar="C", help="look at this corpus only")
    # Those of the other subcommands, so that one which no subcommand comes before is told which it needs.
    misplaced = partial(counts.add_argument, help=argparse.SUPPRESS)
    misplaced("words", nargs="*")
    misplaced("--what-if", action="append")
    for option in ("--against", "--limit", "--seed"):
        misplaced(option)


def run(options: argparse.Namespace) -> None:
    if options.view == "counts":
        _check_placed(options)
    recipe, store = opened(options.variant)
    corpora = [options.corpus] if options.corpus is not None else recipe.corpus_names
    check_known("--corpus", corpora, recipe.corpus_names)
    lines = VIEWS[options.view](Subject(recipe, store, corpora), options)
    for line in terminal.awaited("reading verdicts and documents", lines):
        print(line)


def _check_placed(options: argparse.Namespace) -> None:
    """Raises UsageError, with the command to write, unless all arguments are those of `counts`."""
    if options.words:
        meant = [*([] if options.words[0] in ABOUT else ["documents"]), *options.words]
    elif options.what_if:
        meant = ["what-if", *options.what_if]
    elif options.against is not None:
        meant = ["against", options.against]
    elif options.limit is not None or options.seed is not None:
        meant = ["documents", "RULE"]
    else:
        return
    for name in ("variant", "corpus", "limit", "seed"):
        if (value := getattr(options, name)) is not None:
            meant += [f"--{name}", value]
    *others, last = ABOUT
    command = shlex.join(["python", "-m", "pipeline", "inspect", *meant])
    raise UsageError(f"inspect: name {', '.join(others)} or {last} first: write `{command}`")


def _draw(options: argparse.Namespace) -> Draw:
    check_least("--limit", options.limit)
    check_least("--seed", options.seed, 0)
    return Draw(options.limit, options.seed)


def _counts(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    return _by_language(subject) if options.by else _by_rule(subject)


def _by_rule(subject: Subject) -> Iterator[str]:
    """The kept and the rejected documents by corpus and rule."""
    found = rejections.totals(rejections.sized(subject.store, subject.corpora), "rule")
    whole = rejections.added(((corpus,), amount) for (corpus, _), amount in found.items())
    rows = (
        (corpus, rule or rejections.KEPT, *_shares(found[corpus, rule], whole[corpus,]))
        for corpus, rule in rejections.ordered(found, subject.corpora)
    )
    return tables.table("corpus,verdict,documents,share,of bytes", rows)


def _by_language(subject: Subject) -> Iterator[str]:
    """What is kept of each language in each corpus."""
    corpora = [name for name in subject.corpora if subject.recipe.rules(name).quality.detects]
    if not corpora:
        raise UsageError(
            "--by language: no language was detected: set `quality.by_language` and run the job `corpus`"
        )
    detected = rejections.column(subject.store, keys.languages, "languages", "language")
    judged = rejections.sized(subject.store, corpora, language=detected)
    found = rejections.totals(judged, "language", "keep")
    whole = rejections.added(((corpus, one), amount) for (corpus, one, _), amount in found.items())
    rows = (
        (corpus, one, f"{whole[corpus, one][0]:,}", *_shares(found[corpus, one, True], whole[corpus, one]))
        for corpus, one in rejections.ordered(whole, corpora)
    )
    return tables.table("corpus,language,documents,kept,share,of bytes", rows)


def _shares(amount: np.ndarray, whole: np.ndarray) -> tuple[str, ...]:
    """A number of documents, and what share of the documents and bytes it is."""
    return f"{amount[0]:,}", *(f"{share:.1%}" for share in amount / np.maximum(whole, 1))


def _documents(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    rule, draw = options.rule, _draw(options)
    _check_rule(subject.recipe, rule)
    shown = 0
    for entry in _entries(subject, rule, draw):
        shown += 1
        yield f"{entry}\n"
    if not shown:
        yield f"{rule}: no document of {', '.join(subject.corpora)}"
    elif rule not in (*DUPLICATES, CONTAMINATED, KEPT, *edits.NAMES):
        yield "kept, at random:\n"
        yield from _kept_beside(subject, rule, replace(draw, size=(shown + 1) // 2))


def _check_rule(recipe: Recipe, rule: str) -> None:
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
        found = rejections.stored(store, corpora, keys.contamination, "contamination")
        which, shown = pc.field("quote"), partial(entries.quoting, store)
    elif rule in edits.NAMES:
        found = rejections.stored(store, filter(recipe.is_edited, corpora), keys.edited, "cuts")
        shown = partial(entries.cut, recipe)
    else:
        found, shown = rejections.verdicts(store, corpora), partial(entries.judged, store)
        which = pc.field("keep") if rule == KEPT else which
    return (entry for place, rows in draw.rows(found, which) for entry in shown(place, rows))


def _kept_beside(subject: Subject, rule: str, draw: Draw) -> Iterator[str]:
    """Kept documents, with what `rule` judges them by."""
    for place, rows in draw.rows(rejections.verdicts(subject.store, subject.corpora), pc.field("keep")):
        kept = [row | {"rule": rule} for row in rows]
        yield from (f"{entry}\n" for entry in entries.judged(subject.store, place, kept))


def _what_if(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    """Raises UsageError where more would have to be measured."""
    draw, changed = _draw(options), _changed(subject, options.changes)
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
    return disagreements.lines(subject.store, subject.corpora, judge, now, then, draw)


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


def _against(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    """Raises UsageError if the verdicts of the variant are missing or on other text."""
    draw, this, variant = _draw(options), subject.recipe.variant or BASE, options.against
    theirs, other = opened(variant)
    if variant == this:
        raise UsageError(f"against {variant}: compares it with itself: name another variant")
    if not {*subject.corpora} <= {*theirs.corpus_names}:
        raise UsageError(f"against {variant}: has other corpora than {this}: name a variant of {this}")
    for corpus in subject.corpora:
        text = [keys.scrubbed(corpus)]
        try:
            other.current(keys.quality(corpus))
        except StoreError as error:
            name, section = variant_names.split(variant, JOBS)
            remedy = f"python -m pipeline variants run {name} --job {JOBS.get(section, 'corpus')}"
            raise UsageError(f"against {variant}: {error}: `{remedy}`") from None
        if subject.store.data_versions(text) != other.data_versions(text):
            raise UsageError(
                f"against {variant}: the scrubbed text of {corpus} differs, so the verdicts cannot be "
                "compared: name a variant that changes `quality` alone"
            )
    judge = rejections.column(other, keys.quality, "verdicts", "rule")
    pair = Judging(this, "rule", subject.store), Judging(variant, "then", other)
    return disagreements.lines(subject.store, subject.corpora, judge, *pair, draw)


VIEWS = {"counts": _counts, "documents": _documents, "what-if": _what_if, "against": _against}
