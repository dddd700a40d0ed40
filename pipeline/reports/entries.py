"""Documents as a terminal and the page of `report` show them: what people call each, why it was removed or
kept, with the signals of a rule beside its thresholds, and how its text begins.
"""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.recipe.recipe import Recipe
from pipeline.reports import tables
from pipeline.reports.rejections import Place, Row
from pipeline.sources.documents import title
from pipeline.stages import pii
from pipeline.stages.quality import RULES
from pipeline.stages.quality.by_language import depends
from pipeline.steps.corpus.user_code_stage import described
from pipeline.store import keys
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.parquet import Readable, beginnings, read_table
from pipeline.store.store import Store
from trainer.system.wording import counted

CHARACTERS = 400
WIDTH = 100  # of the many signals of a kept document
NOT_SIGNALS = {"id", "failed", "keep", "reason"}  # the other columns in the table of a filter


def judged(store: Store, place: Place, rows: Sequence[Row]) -> Iterator[str]:
    """Documents of a part that quality judged, with the signals and thresholds of their `rule`, if any."""
    names = _named(store, place, [row["id"] for row in rows])
    for id_, reason, text in with_reasons(store, place, rows, CHARACTERS):
        said = reason if all(row["rule"] for row in rows) else fill(reason, WIDTH)
        yield "\n".join(filter(None, (names[id_], said, tables.printable(text))))


def cut(recipe: Recipe, place: Place, rows: Sequence[Row]) -> Iterator[str]:
    """What was cut, scrubbed now, and where it was."""
    read = pa.RecordBatch.from_pylist([{"id": row["id"], "text": row["text"]} for row in rows])
    texts = pii.scrub(read, recipe.rules(place[0]).scrub)[0].column("text").to_pylist()
    for row, text in zip(rows, texts, strict=True):
        where = f"characters {row['start']:,} to {row['end']:,}"
        yield f"{place[0]} {row['id']}, {where}\n{tables.printable(text[:CHARACTERS])}"


def quoting(store: Store, place: Place, rows: Sequence[Row]) -> Iterator[str]:
    """Documents that quote an evaluation set: id, set, quoted words, and the beginning of the text."""
    ids = [row["id"] for row in rows]
    texts, names = _texts(store, place, ids), _named(store, place, ids)
    for row in rows:
        quoted = tables.printable(row["ngram"]).strip()
        quotes = (
            f"quotes {row['set']}: {quoted!r}, {row['rare']:.0%} rare, at {counted(row['hits'], 'places')}"
        )
        yield f"{names[row['id']]}\n{quotes}\n{texts[row['id']]}"


def duplicates(store: Store, corpora: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """Documents that dedup removed, each followed by the document of `corpora` that was kept instead."""
    wanted = [row[name] for row in rows for name in ("id", "duplicate_of")]
    texts: dict[str, str] = {}
    names: dict[str, str] = {}
    for corpus in corpora:
        for part in store.current(keys.scrubbed(corpus)).parts:
            found = _texts(store, (corpus, part.name), wanted)
            texts |= found
            names |= _named(store, (corpus, part.name), list(found)) if found else {}
    for row in rows:
        removed, kept = (texts.get(row[name], "(no longer in the store)") for name in ("id", "duplicate_of"))
        gone, stays = (names.get(row[name], f"? {row[name]}") for name in ("id", "duplicate_of"))
        yield (
            f"removed {gone}: {row['reason']}, Jaccard {row['jaccard']:.3f}\n{removed}\n"
            f"kept {stays}, which stands for {counted(row['cluster'], 'documents')}\n{kept}"
        )


def _named(store: Store, place: Place, ids: Sequence[str]) -> dict[str, str]:
    """Corpus and id of documents of a part, with what people call them."""
    called = _titles(_documents(store, place), ids)
    return {id_: f"{place[0]} {id_} {name}".strip() for id_, name in called.items()}


def _texts(store: Store, place: Place, ids: Sequence[str]) -> dict[str, str]:
    """The beginnings of those documents of a part that have these ids."""
    found = beginnings(_documents(store, place), ids, CHARACTERS)
    return {id_: tables.printable(text) for id_, text in found.items()}


def with_reasons(
    store: Store, place: Place, rows: Sequence[Row], characters: int
) -> Iterator[tuple[str, str, str]]:
    """Documents of a part: the id, the signals of their `rule` with its thresholds, or without a rule all
    signals that they are judged by, and the beginning of the scrubbed text.
    """
    reasons: dict[str, str] = {}
    for rule in {row["rule"] for row in rows}:
        reasons |= _reasons(store, place, rule, [row["id"] for row in rows if row["rule"] == rule])
    texts = beginnings(_documents(store, place), list(reasons), characters)
    return ((id_, reasons[id_], texts[id_]) for id_ in (row["id"] for row in rows))


def introduced(store: Store, place: Place, ids: Sequence[str], characters: int) -> dict[str, str]:
    """What people call each of these documents of a part, and how its scrubbed text begins, on one line."""
    documents = _documents(store, place)
    texts, called = beginnings(documents, ids, characters + 1), _titles(documents, ids)
    return {
        id_: ": ".join(filter(None, (called[id_], tables.quoted(text, characters))))
        for id_, text in texts.items()
    }


def _documents(store: Store, place: Place) -> Readable:
    return store.current(keys.scrubbed(place[0])).named(place[1], "documents")


def _titles(documents: Readable, ids: Sequence[str]) -> dict[str, str]:
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
            found[row["id"]] += [reason, _listed(signals), _listed(limits) if rule else ""]
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


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
