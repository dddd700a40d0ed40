"""inspect against: what a variant judges differently, by the verdicts in the store."""

import argparse
from collections.abc import Iterator

from pipeline.cli.inspect.options import Subject, add_draw, chosen_draw
from pipeline.cli.opening import UsageError, opened
from pipeline.recipe.post_training import JOBS
from pipeline.reports import rejections
from pipeline.reports.disagreements import Comparison, Judging
from pipeline.store import keys, variant_names
from pipeline.store.store import StoreError
from pipeline.store.variant_names import BASE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("against", metavar="V", help="a variant of the recipe, or `base`")
    add_draw(parser)


def lines(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    """Raises UsageError if the verdicts of the variant are missing or on other text."""
    draw, this, variant = chosen_draw(options), subject.recipe.variant or BASE, options.against
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
    return Comparison(subject.store, subject.corpora, judge, *pair, draw).lines()
