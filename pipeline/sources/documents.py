"""Documents collected into record batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.ids import OWN_ID, digest
from pipeline.sources.rejects import Reason, Rejected, Rejects
from pipeline.store.params import DOCUMENT_SCHEMA

BATCH_BYTES = 6 << 20
LARGE_BYTES = BATCH_BYTES // 6
MAX_DOCUMENT_BYTES = 64 << 20
DETAIL_CHARACTERS = 300


@dataclass(frozen=True)
class Document:
    """One document as its source gives it. `row` is reported if the document is rejected. `own_id`: the
    document brings its id, instead of being known by its location.
    """

    source_id: str
    text: str
    row: int | None
    source: str
    url: str | None = None
    metadata: str | None = None
    own_id: bool = False


class Header(NamedTuple):
    """A document without its text."""

    source_id: str
    own_id: bool
    url: str | None
    metadata: str | None


class Batches:
    """Collects the documents of one unit into record batches, and rejects invalid ones.

    With `keep_ids`, a document that brings its own id keeps it unchanged, and any second document with the
    same id is rejected, even one whose id is made from its location.
    """

    def __init__(self, corpus: str, rejects: Rejects, limit: int | None = None, keep_ids: bool = False):
        self.accepted = 0
        self._corpus = corpus
        self._rejects = rejects
        self._limit = limit
        self._keep_ids = keep_ids
        self._seen: set[bytes] = set()
        self._start()

    def _start(self) -> None:
        self._bytes = 0
        self._rows: list[tuple[str, str | bytes, str, str | None, str | None]] = []
        self._batches: list[pa.RecordBatch] = []

    @property
    def done(self) -> bool:
        """True once `limit` documents were accepted."""
        return self._limit is not None and self.accepted >= self._limit

    def add(self, file: str, document: Document) -> int:
        """Takes a document or rejects it. Returns the bytes of its text, 0 if rejected."""
        try:
            # ASCII text reaches Arrow without an intermediate copy
            text = document.text if document.text.isascii() else document.text.encode()
        except UnicodeEncodeError as error:
            return self.reject(
                file,
                document.row,
                Reason.LONE_SURROGATE,
                f"surrogate {document.text[error.start]!r} at character {error.start}",
            )
        if not text or document.text.isspace():
            return self.reject(file, document.row, Reason.EMPTY_TEXT, "the text is empty or white space")
        if len(text) > MAX_DOCUMENT_BYTES:
            return self.reject(
                file,
                document.row,
                Reason.TOO_LONG,
                f"{len(text)} bytes of text; the limit is {MAX_DOCUMENT_BYTES}",
            )
        name, key = self._identity(document.source_id, document.own_id)
        if document.own_id or self._keep_ids:
            if key in self._seen:
                return self.reject(file, document.row, Reason.DUPLICATE_ID, "an earlier document has this id")
            self._seen.add(key)
        self._rows.append((name, text, document.source, document.url, document.metadata))
        self._bytes += len(text)
        self.accepted += 1
        return len(text)

    def add_batch(self, file: str, texts: pa.LargeStringArray, headers: list[Header]) -> bool:
        """Takes all of these documents, whose texts are valid, without copying the texts. Takes none and
        returns False if `add` would reject one.
        """
        if self._limit is not None and self.accepted + len(headers) > self._limit:
            return False
        identities = [self._identity(header.source_id, header.own_id) for header in headers]
        watched = [
            key
            for header, (_, key) in zip(headers, identities, strict=True)
            if header.own_id or self._keep_ids
        ]
        fresh = set(watched)
        if len(fresh) < len(watched) or not fresh.isdisjoint(self._seen):
            return False
        self._seen |= fresh
        self._gather()
        urls, metadata = [header.url for header in headers], [header.metadata for header in headers]
        self._batches.append(
            _batch([name for name, _ in identities], texts, [file] * len(headers), urls, metadata)
        )
        self._bytes += pc.sum(pc.binary_length(texts)).as_py()
        self.accepted += len(headers)
        return True

    def _identity(self, source_id: str, own: bool) -> tuple[str, bytes]:
        """The document's id, and the key by which a duplicate is recognised."""
        key = digest(self._corpus, source_id)
        if not self._keep_ids:
            return key.hex(), key
        name = source_id.removeprefix(OWN_ID) if own else key.hex()
        return name, digest(self._corpus, name)

    def reject(
        self, file: str, row: int | None, reason: Reason, detail: str, lost_bytes: int = 0, rows: int = 1
    ) -> int:
        """Records a rejected input. Returns 0."""
        self._rejects.append(Rejected(file, row, reason, detail[:DETAIL_CHARACTERS], lost_bytes, rows))
        return 0

    def full(self) -> Iterator[pa.RecordBatch]:
        """What `rest` yields, once BATCH_BYTES are collected; nothing before."""
        if self._bytes >= BATCH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The collected documents. They come as one batch unless every batch taken was large, because then
        joining would copy much and save little.
        """
        self._gather()
        taken = self._batches
        self._start()
        if taken and min(batch.nbytes for batch in taken) < LARGE_BYTES:
            taken = [pa.concat_batches(taken)]
        yield from taken

    def _gather(self) -> None:
        """Turns the collected rows into a batch."""
        if self._rows:
            ids, texts, sources, urls, metadata = zip(*self._rows, strict=True)
            self._rows = []
            self._batches.append(
                _batch(
                    ids, pa.array(texts, pa.large_binary()).view(pa.large_string()), sources, urls, metadata
                )
            )


def _batch(
    ids: Sequence[str],
    texts: pa.LargeStringArray,
    sources: Sequence[str],
    urls: Sequence[str | None],
    metadata: Sequence[str | None],
) -> pa.RecordBatch:
    columns = [
        pa.array(ids),
        texts,
        pa.array(sources),
        pa.array(urls, pa.string()),
        pa.array(metadata, pa.string()),
    ]
    return pa.record_batch(columns, DOCUMENT_SCHEMA)
