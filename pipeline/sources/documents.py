"""What every source has in common: units to read, documents in batches, and what was set aside."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.store.errors import PipelineError
from pipeline.store.params import DOCUMENT_SCHEMA

BATCH_BYTES = 6 << 20
LARGE_BYTES = BATCH_BYTES // 6
MAX_DOCUMENT_BYTES = 64 << 20
METADATA_BYTES = 4096
DETAIL_CHARACTERS = 300
OWN_ID = "id:"


def without_queries(text: str) -> str:
    """What can be shown: the query of a signed URL is a secret, and no error or lineage holds one."""
    return re.sub(r"(\w://[^\s?]*)\?[^\s=]*=\S*?(?=['\"]?(?:\s|$))", r"\1?...", text)  # not the `?` of a glob


class SourceError(PipelineError):
    """A source that cannot be listed at all; the message says what to change, and shows no query of a URL."""

    def __init__(self, message: str) -> None:
        super().__init__(without_queries(message))


class OfflineError(SourceError):
    """A source that cannot be listed because this machine is told to stay offline."""


class Reason(StrEnum):
    """Why an input was set aside."""

    INVALID_JSON = "invalid_json"
    JSON_ARRAY = "json_array"
    NOT_AN_OBJECT = "not_an_object"
    INVALID_UTF8 = "invalid_utf8"
    LONE_SURROGATE = "lone_surrogate"
    NO_TEXT = "no_text"
    NULL_TEXT = "null_text"
    TEXT_NOT_A_STRING = "text_not_a_string"
    EMPTY_TEXT = "empty_text"
    TOO_LONG = "too_long"
    BAD_ID = "bad_id"
    DUPLICATE_ID = "duplicate_id"
    BROKEN_COMPRESSION = "broken_compression"
    BROKEN_PARQUET = "broken_parquet"
    BROKEN_CSV = "broken_csv"
    BROKEN_DATA = "broken_data"
    BROKEN_RECORD = "broken_record"
    NOT_A_PAGE = "not_a_page"
    PAGE_TOOK_TOO_LONG = "page_took_too_long"
    PAGE_BROKE_EXTRACTION = "page_broke_extraction"
    NOT_PYTHON = "not_python"
    EMPTY_FILE = "empty_file"
    UNSUPPORTED_FORMAT = "unsupported_format"
    IS_A_DIRECTORY = "is_a_directory"
    NO_PERMISSION = "no_permission"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Unit:
    """What is read independently, and read again only when its fingerprint changes.

    `name` is stable and holds no absolute path; `bytes` is about what reading it costs; `revision` is the
    commit at which it is read, where there is one, and no part of what it holds.
    """

    name: str
    fingerprint: str
    bytes: int
    revision: str | None = None


@dataclass(frozen=True)
class Rejected:
    """One input set aside. `row` counts from 1 (a line, a row, or a byte offset plus 1 in plain text); None
    means the whole file.
    """

    file: str
    row: int | None
    reason: Reason
    detail: str


class Rejects(Protocol):
    """A list, or anything else that takes what was set aside."""

    def append(self, rejected: Rejected, /) -> None: ...


class Source(Protocol):
    """Where documents come from. Picklable, so that worker processes can read."""

    @property
    def version(self) -> str:
        """The version of the reading code; part of fingerprints."""
        ...

    def units(self) -> list[Unit]:
        """What there is to read, ordered by name. Raises SourceError."""
        ...

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """Batches of DOCUMENT_SCHEMA with about BATCH_BYTES of text; what cannot be read goes to `rejects`.

        Memory is bounded by one batch or one document, except for about 100 bytes for each document that
        brings its own id.
        """
        ...


@dataclass(frozen=True)
class Document:
    """One document as a source found it. `row` is where, for naming it when it is set aside; `own_id`: the id
    is the source's, not a location.
    """

    source_id: str
    text: str
    row: int | None
    source: str
    url: str | None = None
    metadata: str | None = None
    own_id: bool = False


class Named(NamedTuple):
    """A document but for its text."""

    source_id: str
    own_id: bool
    url: str | None
    metadata: str | None


def document_id(corpus: str, source_id: str) -> str:
    """blake2b-128, hex, of the corpus's name (with its length, so that the pair is unambiguous) and the
    source's id.
    """
    return _digest(corpus, source_id).hex()


def _digest(corpus: str, source_id: str) -> bytes:
    return hashlib.blake2b(
        f"{len(corpus)}:{corpus}{source_id}".encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def own_id(value: str) -> str:
    """The source id of a document that brings its own; never equal to a location."""
    return f"{OWN_ID}{value}"


def location(name: str, where: int) -> str:
    """The source id of a document known by its place in a unit: a row from 1, or a byte offset."""
    return f"at:{name}:{where}"


class Batches:
    """Collects the documents of one unit into record batches; sets aside what is no document.

    With `keep_ids` a document that brings its own id keeps it as it is, and no two documents may have one id,
    wherever they have it from.
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
        self._whole: list[pa.RecordBatch] = []

    @property
    def done(self) -> bool:
        """True once `limit` documents were accepted."""
        return self._limit is not None and self.accepted >= self._limit

    def add(self, file: str, document: Document) -> int:
        """Takes a document, or sets it aside; its text in bytes, 0 when set aside."""
        try:
            # ASCII text goes to Arrow without a copy in between
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
        name, digest = self._identity(document.source_id, document.own_id)
        if document.own_id or self._keep_ids:
            if digest in self._seen:
                return self.reject(file, document.row, Reason.DUPLICATE_ID, "an earlier document has this id")
            self._seen.add(digest)
        self._rows.append((name, text, document.source, document.url, document.metadata))
        self._bytes += len(text)
        self.accepted += 1
        return len(text)

    def add_whole(self, file: str, texts: pa.LargeStringArray, named: list[Named]) -> bool:
        """Takes all of these documents without looking at their texts, which are known to be good; none if
        one would be set aside.
        """
        if self._limit is not None and self.accepted + len(named) > self._limit:
            return False
        identities = [self._identity(one.source_id, one.own_id) for one in named]
        watched = [
            digest for one, (_, digest) in zip(named, identities, strict=True) if one.own_id or self._keep_ids
        ]
        fresh = set(watched)
        if len(fresh) < len(watched) or not fresh.isdisjoint(self._seen):
            return False
        self._seen |= fresh
        self._gather()
        urls, metadata = [one.url for one in named], [one.metadata for one in named]
        self._whole.append(
            _batch([name for name, _ in identities], texts, [file] * len(named), urls, metadata)
        )
        self._bytes += pc.sum(pc.binary_length(texts)).as_py()
        self.accepted += len(named)
        return True

    def _identity(self, source_id: str, own: bool) -> tuple[str, bytes]:
        """The document's id, and the digest by which a second one is known."""
        digest = _digest(self._corpus, source_id)
        if not self._keep_ids:
            return digest.hex(), digest
        name = source_id.removeprefix(OWN_ID) if own else digest.hex()
        return name, _digest(self._corpus, name)

    def reject(self, file: str, row: int | None, reason: Reason, detail: str) -> int:
        """Sets an input aside; always 0."""
        self._rejects.append(Rejected(file, row, reason, detail[:DETAIL_CHARACTERS]))
        return 0

    def full(self) -> Iterator[pa.RecordBatch]:
        """The batch in hand if it has reached BATCH_BYTES, else nothing."""
        if self._bytes >= BATCH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The batch in hand, if it holds anything; several where joining them would copy much to save
        little.
        """
        self._gather()
        whole = self._whole
        self._start()
        if whole and min(batch.nbytes for batch in whole) < LARGE_BYTES:
            whole = [pa.concat_batches(whole)]
        yield from whole

    def _gather(self) -> None:
        """Makes the rows in hand a batch."""
        if self._rows:
            ids, texts, sources, urls, metadata = zip(*self._rows, strict=True)
            self._rows = []
            self._whole.append(
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


def metadata_json(values: dict[str, object]) -> str | None:
    """What a source knows beside the text, as JSON of at most about METADATA_BYTES.

    `left_out` counts the values that did not fit or are nested too deeply. Values that JSON does not know
    (dates, decimals) are written as text.
    """
    if not values:
        return None
    encoded = _encoded(values)
    if encoded is None or len(encoded) > METADATA_BYTES:
        encoded = _encoded(_fitting(values)) or b""
    return encoded.decode()


def _encoded(values: dict[str, object]) -> bytes | None:
    """None for what is nested more deeply than the encoder goes, though the decoder did."""
    try:
        return orjson.dumps(values, default=_as_text)
    except TypeError:
        return None


def _as_text(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def _fitting(values: dict[str, object]) -> dict[str, object]:
    fitting: dict[str, object] = {}
    left = METADATA_BYTES
    for name, value in values.items():
        encoded = _encoded({name: value})
        if encoded is not None and len(encoded) <= left:
            fitting[name] = value
            left -= len(encoded)
    return {**fitting, "left_out": len(values) - len(fitting)}
