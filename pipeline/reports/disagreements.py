"""What each rule rejects by two judgings of the same documents, and documents that only one of them keeps."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from pipeline.reports import entries, rejections, tables
from pipeline.reports.evidence import introduced
from pipeline.reports.rejections import KEPT, Amounts, Column, Draw
from pipeline.store.store import Store

BEGINNING = 80  # characters of a document that is shown without evidence


@dataclass(frozen=True)
class Judging:
    """`column` has the rules that reject. `evidence` is the store with these verdicts, if there is one."""

    name: str
    column: str
    evidence: Store | None = None


@dataclass(frozen=True)
class Comparison:
    """The verdicts in `store`, and those that `judge` gives, in the column `then`."""

    store: Store
    corpora: list[str]
    judge: Column
    ours: Judging
    theirs: Judging
    draw: Draw

    def lines(self) -> Iterator[str]:
        found = rejections.totals(self.store, self.corpora, "rule", "then", then=self.judge)
        ours = rejections.added(((corpus, rule), amount) for (corpus, rule, _), amount in found.items())
        theirs = rejections.added(((corpus, rule), amount) for (corpus, _, rule), amount in found.items())
        rows = [
            (corpus, rule or KEPT, *_numbers(ours[corpus, rule], theirs[corpus, rule]))
            for corpus, rule in rejections.ordered(theirs | ours, self.corpora)
        ]
        names = [f"{one.name}{unit}" for one in (self.ours, self.theirs) for unit in ("", " bytes")]
        yield from tables.table(",".join(["corpus", "verdict", *names]), rows)
        lost = rejections.added(
            ((corpus, then), amount) for (corpus, now, then), amount in found.items() if then and not now
        )
        gained = rejections.added(
            ((corpus, now), amount) for (corpus, now, then), amount in found.items() if now and not then
        )
        yield from self._only_kept_by(self.ours, self.theirs, lost)
        yield from self._only_kept_by(self.theirs, self.ours, gained)

    def _only_kept_by(self, keeps: Judging, rejects: Judging, amounts: Amounts) -> Iterator[str]:
        """How many documents each rule rejects that the other judging keeps, and some of them."""
        yield f"\nkept {keeps.name}, rejected {rejects.name}:"
        order = rejections.ordered(amounts, self.corpora)
        rows = [(*key, *_numbers(amounts[key])) for key in order]
        yield from tables.table("corpus,rule,documents,bytes", rows) if rows else ["no document"]
        judged = rejections.verdicts(self.store, self.corpora, then=self.judge)
        which = pc.field(keeps.column).is_null() & pc.field(rejects.column).is_valid()
        for place, drawn in self.draw.rows(judged, which):
            rejected = [row | {"rule": row[rejects.column]} for row in drawn]
            if rejects.evidence:
                yield from (f"\n{entry}" for entry in entries.judged(rejects.evidence, place, rejected))
                continue
            told = introduced(self.store, place, [row["id"] for row in rejected], BEGINNING)
            for row in rejected:
                yield f"    {place[0]} {row['id']} {row['rule']}\n        {told[row['id']]}"


def _numbers(*amounts: np.ndarray) -> Iterator[str]:
    return (f"{number:,}" for amount in amounts for number in amount)
