"""Where the text of some documents also is, under other ids: as far as dedup and decontamination have found
out, and in the texts that models are measured on.

Columns of dedup's tables are read, 2 s for a million documents on a busy core. Text is read only of the parts
that hold the documents, and of evaluation sets and texts, 50 MB/s.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.store import keys
from pipeline.store.files import StoredFile
from pipeline.store.keys import Key
from pipeline.store.parquet import batches
from pipeline.store.store import Store

SAME, ALIKE, PASSAGE = "the same text", "nearly the same text", "a passage"


@dataclass(frozen=True, order=True)
class Copy:
    """`what` of documents is also at a `place`, in the `document` there, which is empty for a passage."""

    place: str
    what: str
    document: str = ""


def copies(store: Store, documents: Mapping[str, Collection[str]]) -> list[Copy]:
    """Copies of documents, which are ids by corpus, in documents that are none of these."""
    asked = {id for of_corpus in documents.values() for id in of_corpus}
    ids = pa.array(sorted(asked), pa.string())
    found = {*_with_same_text(store, ids), *_quoted_sets(store, ids), *_in_evaluations(store, documents)}
    known = asked | {one.document for one in found}
    found |= {one for one in _near_duplicates(store, ids) if one.document not in known}
    return sorted(one for one in found if one.document not in asked)


def _with_same_text(store: Store, ids: pa.Array) -> Iterator[Copy]:
    """Documents of corpora of which dedup has seen the same normalized text."""
    signed = [
        (f"corpus {corpus}", file)
        for corpus in _corpora(store, keys.signatures)
        for _, file in _files(store, keys.signatures(corpus), "signatures")
        if "exact" in pq.read_schema(file).names  # not of a corpus with `dedup: false`
    ]
    texts = pa.array(
        [one for _, file in signed for one in _values_where(file, "exact", by="id", wanted=ids)],
        pa.binary(16),
    )
    for place, file in signed:
        yield from (Copy(place, SAME, id) for id in _values_where(file, "id", by="exact", wanted=texts))


def _near_duplicates(store: Store, ids: pa.Array) -> Iterator[Copy]:
    """Documents of corpora for which dedup left these out, or that it left out for these."""
    decided = [
        (f"corpus {keys.DecidedPart.from_name(part).corpus}", file)
        for part, file in _files(store, keys.DEDUP, "decisions")
    ]
    found = [
        other
        for _, file in decided
        for one, another in (("id", "duplicate_of"), ("duplicate_of", "id"))
        for other in _values_where(file, one, by=another, wanted=ids)
    ]
    near = pa.array(found, pa.string())
    for place, file in decided:
        yield from (Copy(place, ALIKE, id) for id in _values_where(file, "id", by="id", wanted=near))


def _quoted_sets(store: Store, ids: pa.Array) -> Iterator[Copy]:
    """Evaluation sets of which the documents quote a passage."""
    for corpus in _corpora(store, keys.contamination):
        for _, file in _files(store, keys.contamination(corpus), "contamination"):
            for batch in batches(file, ["id", "set", "quote"]):
                quotes = pc.and_(pc.is_in(batch.column("id"), ids), batch.column("quote"))
                names = batch.column("set").filter(quotes).to_pylist()
                yield from (Copy(f"evaluation set {name}", PASSAGE) for name in names)


def _in_evaluations(store: Store, documents: Mapping[str, Collection[str]]) -> Iterator[Copy]:
    """Documents of evaluation sets and texts with the same text, but for white space."""
    measured = [name for name in _corpora(store, keys.raw) if "." in name]  # which no corpus has in its name
    if not measured:
        return
    texts = {
        _hash(text)
        for corpus, ids in documents.items()
        for _, file in _files(store, keys.raw(corpus), "documents")
        if _values_where(file, "id", by="id", wanted=(wanted := pa.array([*ids], pa.string())))
        for text in _values_where(file, "text", by="id", wanted=wanted)
    }
    for corpus in measured:
        kind, _, name = corpus.partition(".")
        place = f"evaluation {'text' if kind == 'text' else 'set'} {name}"
        for _, file in _files(store, keys.raw(corpus), "documents"):
            for batch in batches(file, ["id", "text"]):
                rows = zip(batch.column("id").to_pylist(), batch.column("text").to_pylist(), strict=True)
                yield from (Copy(place, SAME, id) for id, text in rows if _hash(text) in texts)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(" ".join(text.split()).encode(), digest_size=16).digest()


def _corpora(store: Store, key: Callable[[str], Key]) -> list[str]:
    """The corpora that have versions of a stage."""
    return sorted(folder.parent.name for folder in store.root.glob(key(keys.ANY_CORPUS)))


def _files(store: Store, key: Key, table: str) -> Iterator[tuple[str, StoredFile]]:
    """The files of a table in all versions of a key, each content once, with the names of their parts."""
    seen: set[str] = set()
    for version in store.newest_first(key):
        for part in version.parts:
            if table in part.files and (content := part.files[table].sha256) not in seen:
                seen.add(content)
                yield part.name, version.file(part, table)


def _values_where(file: StoredFile, column: str, *, by: str, wanted: pa.Array) -> list[Any]:
    """The values of a column, without nulls, in the rows whose column `by` has one of the `wanted` values."""
    if len(wanted) == 0:
        return []
    found = (
        batch.column(column).filter(pc.is_in(batch.column(by), wanted))
        for batch in batches(file, sorted({column, by}))
    )
    return [one for values in found for one in values.drop_null().to_pylist()]
