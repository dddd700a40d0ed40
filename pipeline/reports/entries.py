"""Documents as a terminal shows them: what people call each, why it was removed or kept, and its text."""

from collections.abc import Iterator, Sequence
from textwrap import fill

import pyarrow as pa

from pipeline.recipe.recipe import Recipe
from pipeline.reports import evidence, tables
from pipeline.reports.rejections import Place, Row
from pipeline.stages import pii
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.parquet import beginnings
from pipeline.store.store import Store
from trainer.system.wording import counted

CHARACTERS = 400
WIDTH = 100  # of the many signals of a kept document


def judged(store: Store, place: Place, rows: Sequence[Row]) -> Iterator[str]:
    """Documents of a part that quality judged, with the signals and thresholds of their `rule`, if any."""
    names = _named(store, place, [row["id"] for row in rows])
    for id_, reason, text in evidence.judged(store, place, rows, CHARACTERS):
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
    corpus, part = place
    ids = [row["id"] for row in rows]
    texts, names = _texts(store.current(keys.scrubbed(corpus)), part, ids), _named(store, place, ids)
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
        version = store.current(keys.scrubbed(corpus))
        for part in version.parts:
            found = _texts(version, part.name, wanted)
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
    documents = store.current(keys.scrubbed(place[0])).named(place[1], "documents")
    return {
        id_: f"{place[0]} {id_} {called}".strip() for id_, called in evidence.titles(documents, ids).items()
    }


def _texts(version: Version, part: str, ids: Sequence[str]) -> dict[str, str]:
    """The beginnings of those documents of a part that have these ids."""
    found = beginnings(version.named(part, "documents"), ids, CHARACTERS)
    return {id_: tables.printable(text) for id_, text in found.items()}
