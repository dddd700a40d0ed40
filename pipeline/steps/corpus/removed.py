"""The documents that quality rejected, each with the evidence: its signals, the limits of the rule, and the
beginning of its text after scrubbing.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as pc

from pipeline.steps.corpus.failures import described
from pipeline.store import keys
from pipeline.store.fingerprint import fingerprint
from pipeline.store.manifest import Version
from pipeline.store.parquet import beginnings, read_table
from pipeline.store.store import Store

SEED = 1
NOT_SIGNALS = {"id", "failed", "keep", "reason"}  # the other columns in the table of a filter
Row = dict[str, Any]


class Removed(NamedTuple):
    """A rejected document."""

    corpus: str
    id: str
    evidence: str
    text: str


def drawn(rows: Iterable[Row], number: int) -> list[Row]:
    """A random sample of `rows`, which have an `id`: the same each time, whatever their order."""
    return heapq.nsmallest(number, rows, key=lambda row: fingerprint([SEED, row["id"]]))


def examples(store: Store, rule: str, corpora: Sequence[str], number: int, characters: int) -> list[Removed]:
    """Documents that `rule` rejected, drawn at random."""
    verdicts = (file for corpus in corpora for file in store.current(keys.quality(corpus)).files("verdicts"))
    ids = (row for file in verdicts for row in read_table(file, ["id"], pc.field("rule") == rule).to_pylist())
    wanted = [row["id"] for row in drawn(ids, number)]
    return list(rejected(store, rule, corpora, characters, pc.field("id").isin(wanted)))


def rejected(
    store: Store, rule: str, corpora: Collection[str], characters: int, wanted: pc.Expression | None = None
) -> Iterator[Removed]:
    """The documents that `rule` rejected, or those among them that are `wanted`, corpus by corpus."""
    for corpus in corpora:
        verdicts, scrubbed = store.current(keys.quality(corpus)), store.current(keys.scrubbed(corpus))
        evidence = _evidence(rule, verdicts.manifest["params"])
        if evidence is None:
            continue
        measured = store.current(keys.of_corpus(corpus, evidence.stage))
        by_rule = pc.field("rule") == rule
        for part in verdicts.parts:
            rows = _rows(verdicts, part.name, "verdicts", by_rule if wanted is None else by_rule & wanted)
            if not rows:
                continue
            ids = [row["id"] for row in rows]
            if evidence.table == "failures":
                mine = (pc.field("name") == rule.partition(".")[0]) & pc.field("id").isin(ids)
                failures = [
                    row for one in (measured, verdicts) for row in _rows(one, part.name, "failures", mine)
                ]
                found = {row["id"]: described(row) for row in failures}
            else:
                signals = _rows(measured, part.name, evidence.table, pc.field("id").isin(ids))
                found = {row["id"]: _named(evidence.of(row)) for row in signals}
            texts = beginnings(scrubbed.named(part.name, "documents"), ids, characters)
            for row in rows:
                reason = ", ".join(filter(None, (row.get("reason"), found[row["id"]], evidence.limits)))
                yield Removed(corpus, row["id"], reason, texts[row["id"]])


class _Evidence(NamedTuple):
    """Where the evidence for a rule is stored, in some columns or in all; and the limits of the rule."""

    stage: str
    table: str
    limits: str
    columns: tuple[str, ...] = ()

    def of(self, row: Row) -> Row:
        """The signals in a row."""
        return {n: value for n, value in row.items() if n in (self.columns or row.keys() - NOT_SIGNALS)}


def _evidence(rule: str, params: Mapping[str, Any]) -> _Evidence | None:
    """The evidence for a rule. None if verdicts with these `params` do not use the rule."""
    name, _, error = rule.partition(".")
    for own in params.get("filters", ()):
        if own["name"] == name:
            stage, limits = f"{keys.FILTERS}/{name}", _named(own["params"])
            return _Evidence(stage, "failures", "") if error else _Evidence(stage, "signals", limits)
    if rule == "language" and params.get("languages") is not None:
        limits = _named({name: params[name] for name in ("languages", "min_language_confidence")})
        return _Evidence("languages", "languages", limits, ("language", "language_confidence"))
    if rule not in params:
        return None  # languages are not detected, or the filter was added to the recipe later
    return _Evidence("signals", "signals", _named({rule: params[rule]}), (rule.partition("_")[2],))


def _rows(version: Version, part: str, table: str, where: pc.Expression) -> list[Row]:
    return read_table(version.named(part, table), filters=where).to_pylist()


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
