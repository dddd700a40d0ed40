"""What each rule rejects by two judgings of the same documents, and documents that only one of them keeps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from pipeline.reports import entries, rejections, tables
from pipeline.reports.evidence import introduced
from pipeline.reports.rejections import KEPT, Amounts, Column, Draw, Drawn, Tables
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
        found, (ours, theirs) = rejections.added(()), (pc.field(one.column) for one in self._both)
        lost, gained = self.draw.of_each(
            self._counted(found), ours.is_null() & theirs.is_valid(), theirs.is_null() & ours.is_valid()
        )
        now = rejections.added(((corpus, rule), amount) for (corpus, rule, _), amount in found.items())
        then = rejections.added(((corpus, rule), amount) for (corpus, _, rule), amount in found.items())
        rows = [
            (corpus, rule or KEPT, *_numbers(now[corpus, rule], then[corpus, rule]))
            for corpus, rule in rejections.ordered(then | now, self.corpora)
        ]
        names = [f"{one.name}{unit}" for one in self._both for unit in ("", " bytes")]
        yield from tables.table(",".join(["corpus", "verdict", *names]), rows)
        yield from self._only_kept_by(self.ours, self.theirs, found, lost)
        swapped = {(corpus, second, first): amount for (corpus, first, second), amount in found.items()}
        yield from self._only_kept_by(self.theirs, self.ours, swapped, gained)

    @property
    def _both(self) -> tuple[Judging, Judging]:
        return self.ours, self.theirs

    def _counted(self, amounts: Amounts) -> Tables:
        """The documents as both judge them. Adds to `amounts` the amounts by both verdicts."""
        for place, rows in rejections.sized(self.store, self.corpora, then=self.judge):
            for key, amount in rejections.totals([(place, rows)], "rule", "then").items():
                amounts[key] += amount
            yield place, rows

    def _only_kept_by(
        self, keeps: Judging, rejects: Judging, by_rules: Mapping[tuple[Any, ...], np.ndarray], drawn: Drawn
    ) -> Iterator[str]:
        """How many documents each rule rejects that the other judging keeps, and some of them. `by_rules` has
        the amounts by corpus and by the rules of both judgings that reject, if any.
        """
        amounts = {
            (corpus, rule): amount for (corpus, other, rule), amount in by_rules.items() if rule and not other
        }
        yield f"\nkept {keeps.name}, rejected {rejects.name}:"
        order = rejections.ordered(amounts, self.corpora)
        rows = [(*key, *_numbers(amounts[key])) for key in order]
        yield from tables.table("corpus,rule,documents,bytes", rows) if rows else ["no document"]
        for place, documents in drawn:
            rejected = [row | {"rule": row[rejects.column]} for row in documents]
            if rejects.evidence:
                yield from (f"\n{entry}" for entry in entries.judged(rejects.evidence, place, rejected))
                continue
            told = introduced(self.store, place, [row["id"] for row in rejected], BEGINNING)
            for row in rejected:
                yield f"    {place[0]} {row['id']} {row['rule']}\n        {told[row['id']]}"


def _numbers(*amounts: np.ndarray) -> Iterator[str]:
    return (f"{number:,}" for amount in amounts for number in amount)
