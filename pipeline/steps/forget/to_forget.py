"""Finds the documents that are to be forgotten, and their duplicates, which then come back."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.documents import document_id, own_id
from pipeline.steps.lineage.checkpoints import LineageError
from pipeline.store import keys
from pipeline.store.forgotten import Request, among, hashed, requests_by_folder
from pipeline.store.params import GROUP
from pipeline.store.parquet import all_batches
from pipeline.store.versions import Versions

NAME_SHOWN = 400  # characters of a name, in a message
Documents = Mapping[str, set[str]]  # ids by corpus


class Earlier(NamedTuple):
    """An earlier request, and the folder that may have its certificate."""

    folder: Path
    request: Request


@dataclass(frozen=True)
class Requested:
    """The documents that names stand for. `documents` are those that are not forgotten yet. `earlier` has the
    names whose documents are all forgotten, each with the request that forgot them. Raw text still holds the
    documents of the names in `held`.
    """

    documents: Documents
    earlier: Mapping[str, Earlier]
    held: Collection[str]


def find(store: Versions, named: Sequence[str], retrain_tokenizer: bool = False) -> Requested:
    """The documents of all corpora, whatever recipe has read them. Each name is an id of the store, an id
    that the source gives, a URL, or a file of a source or a corpus, whose documents are meant. With
    `retrain_tokenizer`, a request without it has forgotten nothing yet. Raises LineageError for a name of
    none.
    """
    store.files.versions()
    past = _Past.of(store)
    forgotten = past.only_retraining if retrain_tokenizer else past
    documents: dict[str, set[str]] = defaultdict(set)
    new: set[str] = set()
    earlier: dict[str, Earlier] = {}
    for corpus in _corpora(store):
        for id, name in _meant(store, corpus, named):
            if request := forgotten.documents.get((corpus, hashed(id))):
                earlier[name] = request
            else:
                documents[corpus].add(id)
                new.add(name)
    held = earlier.keys() - new
    for name in sorted({*named} - new - held):
        if (request := past.named(name)) is None:
            shown = name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN]}..."
            raise LineageError(
                f"{shown!r} is not the id or the URL of a document, nor a file or a corpus, that this "
                "store has read: `python -m pipeline trace` finds the documents that hold a text"
            )
        earlier[name] = request
    return Requested(dict(documents), {name: one for name, one in earlier.items() if name not in new}, held)


def is_file_of_a_source(store: Versions, name: str) -> bool:
    """Whether the store has documents that were read from a file with this name."""
    return any(
        pc.any(pc.equal(batch.column("source"), name)).as_py()
        for corpus in _corpora(store)
        for version in store.newest_first(keys.raw(corpus))
        for batch in all_batches(version, "documents", ["source"])
    )


def _corpora(store: Versions) -> list[str]:
    return sorted(folder.parent.name for folder in store.root.glob(keys.raw("*")))


@dataclass(frozen=True)
class _Past:
    """What was forgotten before: by corpus and hash of the id, and by the hash of what a person called it."""

    requests: Sequence[Earlier]

    @classmethod
    def of(cls, store: Versions) -> Self:
        return cls([Earlier(*one) for one in requests_by_folder(store.files).items()])

    @property
    def only_retraining(self) -> "_Past":
        return _Past([one for one in self.requests if one.request.retrain_tokenizer])

    @cached_property
    def documents(self) -> Mapping[tuple[str, str], Earlier]:
        return {
            (corpus, document): one
            for one in reversed(self.requests)  # the oldest stays
            for corpus, documents in one.request.documents.items()
            for document in documents
        }

    @cached_property
    def names(self) -> Mapping[str, Earlier]:
        return {name: one for one in reversed(self.requests) for name in one.request.named}

    def named(self, name: str) -> Earlier | None:
        """The request that forgot what has this name: an id of the store or of a source, a URL, a corpus."""
        corpora = {corpus for one in self.requests for corpus in one.request.documents}
        ids = ((corpus, id) for corpus in corpora for id in (name, document_id(corpus, own_id(name))))
        known = (self.documents.get((corpus, hashed(id))) for corpus, id in ids)
        return self.names.get(hashed(name)) or next(filter(None, known), None)


def _meant(store: Versions, corpus: str, named: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The ids of the stored documents of a corpus that are meant, each with the name that means it: each
    document by the corpus itself where that is named, else by names of its own.
    """
    aliases = {document_id(corpus, own_id(name)): name for name in named} | {name: name for name in named}
    for version in store.newest_first(keys.raw(corpus)):
        for batch in all_batches(version, "documents", ["id", "source", "url"]):
            ids = batch.column("id")
            if corpus in named:
                yield from ((id, corpus) for id in ids.to_pylist())
            else:
                yield from ((ids[row].as_py(), name) for row, name in _hits(batch, aliases))


def _hits(batch: pa.RecordBatch, aliases: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The rows that are meant, each with the name that means it."""
    wanted, ids = pa.array(list(aliases)), batch.column("id")
    groups = pc.replace_substring_regex(ids, f"{GROUP}.*", "")
    for column in (ids, groups, batch.column("source"), batch.column("url")):
        for row in np.flatnonzero(pc.is_in(column, wanted)):
            yield int(row), aliases[column[int(row)].as_py()]


def returning(store: Versions, documents: Collection[str]) -> dict[str, str]:
    """The documents that dedup left out for one of these, with that one: unless forgotten, they come back."""
    found: dict[str, str] = {}
    for version in store.newest_first(keys.DEDUP):
        for batch in all_batches(version, "decisions", ["id", "duplicate_of"]):
            ids, survivors = batch.column("id"), batch.column("duplicate_of")
            comes = among(documents, survivors) & ~among(documents, ids)
            found |= {ids[row].as_py(): survivors[row].as_py() for row in map(int, np.flatnonzero(comes))}
    return found
