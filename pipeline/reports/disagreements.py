"""What each rule rejects by two judgings of the same documents, and documents that only one of them keeps."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from pipeline.reports import entries, rejections, tables
from pipeline.reports.rejections import KEPT, Column, Draw, Drawn, Tables
from pipeline.store.store import Store

BEGINNING = 80  # characters of a document that is shown without evidence


@dataclass(frozen=True)
class Judging:
    """`column` has the rules that reject. `evidence` is the store with these verdicts, if there is one."""

    name: str
    column: str
    evidence: Store | None = None


def lines(
    store: Store, corpora: list[str], judge: Column, ours: Judging, theirs: Judging, draw: Draw
) -> Iterator[str]:
    """Compares the verdicts in `store`, which are `ours`, with those that `judge` gives, in the column `then`
    of `theirs`.
    """
    found = rejections.added(())

    def judged() -> Tables:
        for place, rows in rejections.sized(store, corpora, then=judge):
            for key, amount in rejections.totals([(place, rows)], "rule", "then").items():
                found[key] += amount
            yield place, rows

    kept, kept_then = (pc.field(one.column).is_null() for one in (ours, theirs))
    lost, gained = draw.of_each(judged(), kept & ~kept_then, kept_then & ~kept)
    now = rejections.added(((corpus, rule), amount) for (corpus, rule, _), amount in found.items())
    then = rejections.added(((corpus, rule), amount) for (corpus, _, rule), amount in found.items())
    rows = [
        (corpus, rule or KEPT, *_numbers(now[corpus, rule], then[corpus, rule]))
        for corpus, rule in rejections.ordered(then | now, corpora)
    ]
    names = [f"{one.name}{unit}" for one in (ours, theirs) for unit in ("", " bytes")]
    yield from tables.table(",".join(["corpus", "verdict", *names]), rows)
    only_ours = {(corpus, rule): n for (corpus, other, rule), n in found.items() if rule and not other}
    only_theirs = {(corpus, rule): n for (corpus, rule, other), n in found.items() if rule and not other}
    for keeps, rejects, amounts, drawn in (
        (ours, theirs, only_ours, lost),
        (theirs, ours, only_theirs, gained),
    ):
        yield f"\nkept {keeps.name}, rejected {rejects.name}:"
        by_rule = [(*key, *_numbers(amounts[key])) for key in rejections.ordered(amounts, corpora)]
        yield from tables.table("corpus,rule,documents,bytes", by_rule) if by_rule else ["no document"]
        yield from _rejected(store, rejects, drawn)


def _rejected(store: Store, by: Judging, drawn: Drawn) -> Iterator[str]:
    """Documents, with the evidence where there is some."""
    for place, documents in drawn:
        rejected = [row | {"rule": row[by.column]} for row in documents]
        if by.evidence:
            yield from (f"\n{entry}" for entry in entries.judged(by.evidence, place, rejected))
            continue
        told = entries.introduced(store, place, [row["id"] for row in rejected], BEGINNING)
        for row in rejected:
            yield f"    {place[0]} {row['id']} {row['rule']}\n        {told[row['id']]}"


def _numbers(*amounts: np.ndarray) -> Iterator[str]:
    return (f"{number:,}" for amount in amounts for number in amount)
