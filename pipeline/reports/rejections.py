"""How many documents and bytes quality rejects, by its verdicts or by others; rows drawn at random."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.store import keys
from pipeline.store.keys import Key
from pipeline.store.parquet import read_table
from pipeline.store.store import Store

KEPT = "kept"  # in place of a rule
Row = dict[str, Any]
Place = tuple[str, str]  # a corpus, and a part of it
Tables = Iterable[tuple[Place, pa.Table]]  # one part at a time: memory follows the part
Column = Callable[[str, str], pa.Table]  # of a corpus and a part: ids, and a value for each
Drawn = list[tuple[Place, list[Row]]]
Amounts = defaultdict[tuple[Any, ...], np.ndarray]  # documents, and the UTF-8 bytes of their scrubbed text


def stored(store: Store, corpora: Iterable[str], key: Callable[[str], Key], table: str) -> Tables:
    """A table of a stage of each corpus."""
    for corpus in corpora:
        version = store.current(key(corpus))
        yield from (((corpus, part.name), read_table(version.file(part, table))) for part in version.parts)


def verdicts(store: Store, corpora: Iterable[str], **columns: Column) -> Tables:
    """The verdicts on all documents, with further columns, joined on the id."""
    for place, rows in stored(store, corpora, keys.quality, "verdicts"):
        for name, column in columns.items():
            ids, values = column(*place).columns
            rows = rows.append_column(name, values.take(pc.index_in(rows["id"], ids)))
        yield place, rows


def column(store: Store, key: Callable[[str], Key], table: str, name: str) -> Column:
    """A column of a table of a stage."""
    return lambda corpus, part: read_table(store.current(key(corpus)).named(part, table), ["id", name])


def sized(store: Store, corpora: Iterable[str], **columns: Column) -> Tables:
    """The verdicts with the `bytes` of each document, and with further columns."""
    return verdicts(store, corpora, bytes=column(store, keys.signals, "signals", "bytes"), **columns)


def totals(tables: Tables, *by: str) -> Amounts:
    """The amounts in tables of `sized`, by corpus and by the values of these columns."""
    return added(
        ((corpus, *(row[name] for name in by)), np.array([row["id_count"], row["bytes_sum"]]))
        for (corpus, _), rows in tables
        for row in rows.group_by([*by]).aggregate([("id", "count"), ("bytes", "sum")]).to_pylist()
    )


def added(amounts: Iterable[tuple[tuple[Any, ...], np.ndarray]]) -> Amounts:
    """The sums of the amounts with the same key."""
    found: Amounts = defaultdict(partial(np.zeros, 2, int))
    for key, amount in amounts:
        found[key] += amount
    return found


def ordered(amounts: Mapping[tuple[Any, ...], np.ndarray], corpora: Sequence[str]) -> list[tuple[Any, ...]]:
    """The keys of the amounts by corpus, first what is kept, then by the number of documents."""
    return sorted(amounts, key=lambda key: (corpora.index(key[0]), bool(key[1]), -amounts[key][0], str(key)))


@dataclass(frozen=True)
class Draw:
    """At most `size` rows at random. The same seed draws the same rows."""

    size: int
    seed: int = 0

    def rows(self, tables: Tables, which: pc.Expression) -> Drawn:
        """Some of those that pass `which`, each as likely as any other."""
        return self.of_each(tables, which)[0]

    def of_each(self, tables: Tables, *which: pc.Expression) -> list[Drawn]:
        """As `rows`, for each of several expressions by itself."""
        randoms = [np.random.default_rng(self.seed) for _ in which]
        drawn: list[list[tuple[float, tuple[int, Place], Row]]] = [[] for _ in which]
        for number, (place, table) in enumerate(tables):
            for index, expression in enumerate(which):
                rows = table.filter(expression)
                draws = randoms[index].random(rows.num_rows)
                first = draws.argsort()[: self.size]
                found = zip(draws[first], repeat((number, place)), rows.take(first).to_pylist(), strict=False)
                drawn[index] = nsmallest(self.size, [*drawn[index], *found], key=itemgetter(0))
        by_place = (groupby(sorted(one, key=itemgetter(1)), key=itemgetter(1)) for one in drawn)
        return [[(place, [row for *_, row in each]) for (_, place), each in one] for one in by_place]
