"""Why quality rejected or kept a document: the signals of a rule beside its thresholds, and the text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from pipeline.reports import tables
from pipeline.reports.rejections import Place, Row
from pipeline.sources.documents import title
from pipeline.stages.quality import RULES
from pipeline.stages.quality.by_language import depends
from pipeline.steps.corpus.user_code_stage import described
from pipeline.store import keys
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.parquet import Readable, beginnings, read_table
from pipeline.store.store import Store

NOT_SIGNALS = {"id", "failed", "keep", "reason"}  # the other columns in the table of a filter


def judged(
    store: Store, place: Place, rows: Sequence[Row], characters: int
) -> Iterator[tuple[str, str, str]]:
    """Documents of a part: the id, the signals of their `rule` with its thresholds, or without a rule all
    signals that they are judged by, and the beginning of the scrubbed text.
    """
    corpus, part = place
    reasons: dict[str, str] = {}
    for rule in {row["rule"] for row in rows}:
        reasons |= _reasons(store, place, rule, [row["id"] for row in rows if row["rule"] == rule])
    texts = beginnings(
        store.current(keys.scrubbed(corpus)).named(part, "documents"), list(reasons), characters
    )
    return ((id_, reasons[id_], texts[id_]) for id_ in (row["id"] for row in rows))


def introduced(store: Store, place: Place, ids: Sequence[str], characters: int) -> dict[str, str]:
    """What people call each of these documents of a part, and how its scrubbed text begins, on one line."""
    documents = store.current(keys.scrubbed(place[0])).named(place[1], "documents")
    texts, called = beginnings(documents, ids, characters + 1), titles(documents, ids)
    return {
        id_: ": ".join(filter(None, (called[id_], tables.quoted(text, characters))))
        for id_, text in texts.items()
    }


def titles(documents: Readable, ids: Sequence[str]) -> dict[str, str]:
    """What people call those documents that have these ids, in quotes; empty where nobody knows."""
    rows = read_table(documents, ["id", "url", "metadata"], pc.field("id").isin(ids)).to_pylist()
    return {row["id"]: tables.titled(title(row["metadata"], row["url"])) for row in rows}


def _reasons(store: Store, place: Place, rule: str | None, ids: Sequence[str]) -> dict[str, str]:
    corpus, part = place
    verdicts = store.current(keys.quality(corpus))
    found: dict[str, list[str]] = {id_: [] for id_ in ids}
    for stage, columns, limits in _evidence(rule, verdicts.manifest["params"]):
        measured, mine = store.current(Key(stage, corpus)), pc.field("id").isin(ids)
        if rule and "." in rule:
            mine &= pc.field("name") == rule.partition(".")[0]
            for row in (row for one in (measured, verdicts) for row in _rows(one, part, "failures", mine)):
                found[row["id"]].append(described(row))
            continue
        table = "languages" if stage == "languages" else "signals"
        for row in _rows(measured, part, table, mine):
            signals = {n: value for n, value in row.items() if n in (columns or row.keys() - NOT_SIGNALS)}
            reason = "" if row.get("keep") else row.get("reason") or ""  # a function may give one for both
            found[row["id"]] += [reason, _named(signals), _named(limits) if rule else ""]
    return {id_: ", ".join(filter(None, each)) for id_, each in found.items()}


def _evidence(rule: str | None, params: Row) -> Iterator[tuple[str, list[str], Row]]:
    """For a rule of verdicts with these `params`, or for all: the stage that has the signals, which these are
    if not all of it, and the limits.
    """
    rules = [rule] if rule else [one for one in RULES if params.get(one) not in (None, False)]
    if limits := {one: params[one] for one in rules if one in params}:
        by_language = params.get("by_language") and rule is not None and depends(rule)
        shown = {one: f"{value} in English" if by_language else value for one, value in limits.items()}
        yield "signals", [one.partition("_")[2] for one in limits], shown
        if by_language:
            yield "languages", ["language"], {}
    if rule in ("language", None) and params.get("languages") is not None:
        limits = {one: params[one] for one in ("languages", "min_language_confidence")}
        yield "languages", ["language", "language_confidence"], limits
    for own in params.get("filters", ()):
        if rule is None or own["name"] == rule.partition(".")[0]:
            yield f"{keys.FILTERS}/{own['name']}", [], own["params"]


def _rows(version: Version, part: str, table: str, where: pc.Expression) -> list[Row]:
    return read_table(version.named(part, table), filters=where).to_pylist()


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
