"""inspect counts: the documents that each rule rejects, or those that are kept of each language."""

import argparse
from collections.abc import Iterator

import numpy as np

from pipeline.cli.inspect.options import Subject
from pipeline.cli.opening import UsageError
from pipeline.reports import rejections, tables
from pipeline.store import keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=["language"], help="count the kept documents of each language")


def lines(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
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
