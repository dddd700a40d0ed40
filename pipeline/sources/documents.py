"""A document of a source, its id and its metadata, and documents collected into record batches."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import orjson
import pyarrow as pa

from pipeline.sources.source import Reason, Rejected, Rejects
from pipeline.store.params import DOCUMENT_SCHEMA, GROUP

BATCH_BYTES = 6 << 20
ROW_BYTES = 100  # what a row counts besides its text, so that memory is bounded also where texts are words
MAX_DOCUMENT_BYTES = 64 << 20
DETAIL_CHARACTERS = 300
OWN_ID = "id:"
METADATA_BYTES = 4096
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
TITLES = ("title", "name")  # in metadata, in any case of letters


@dataclass(frozen=True)
class SourceDocument:
    """One document as its source gives it. `source_id` is an `own_id` or a `location`. `row` is reported if
    the document is rejected. Documents of one `group` are held out together, in whatever corpus they are.
    """

    source_id: str
    text: str
    row: int | None
    source: str
    url: str | None = None
    metadata: str | None = None
    group: str | None = None


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

    @property
    def done(self) -> bool:
        """True once `limit` documents were accepted."""
        return self._limit is not None and self.accepted >= self._limit

    def add(self, file: str, document: SourceDocument) -> int:
        """Takes a document or rejects it. Returns the bytes of its text, 0 if rejected."""
        reject = partial(self.reject, file, document.row)
        try:
            # ASCII text reaches Arrow without an intermediate copy
            text = document.text if document.text.isascii() else document.text.encode()
        except UnicodeEncodeError as error:
            why = f"surrogate {document.text[error.start]!r} at character {error.start}"
            return reject(Reason.LONE_SURROGATE, why)
        if not text or document.text.isspace():
            return reject(Reason.EMPTY_TEXT, "the text is empty or white space")
        if len(text) > MAX_DOCUMENT_BYTES:
            return reject(Reason.TOO_LONG, f"{len(text)} bytes of text; the limit is {MAX_DOCUMENT_BYTES}")
        brings_id = document.source_id.startswith(OWN_ID)
        key = digest(self._corpus, document.source_id)
        name = key.hex()
        if self._keep_ids:
            name = document.source_id.removeprefix(OWN_ID) if brings_id else name
            key = digest(self._corpus, name)
        if brings_id or self._keep_ids:
            if key in self._seen:
                return reject(Reason.DUPLICATE_ID, "an earlier document has this id")
            self._seen.add(key)
        if document.group is not None:
            name += GROUP + digest("", document.group).hex()
        self._rows.append((name, text, document.source, document.url, document.metadata))
        self._bytes += len(text) + ROW_BYTES
        self.accepted += 1
        return len(text)

    def reject(
        self, file: str, row: int | None, reason: Reason, detail: str, lost_bytes: int = 0, rows: int = 1
    ) -> int:
        """Records a rejected input. Returns 0."""
        self._rejects.append(Rejected(file, row, reason, detail[:DETAIL_CHARACTERS], lost_bytes, rows))
        return 0

    def full(self) -> Iterator[pa.RecordBatch]:
        """Yields a batch, as `rest` does, once BATCH_BYTES are collected; before that nothing."""
        if self._bytes >= BATCH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The collected documents, as one batch; nothing if there are none."""
        if self._rows:
            ids, texts, sources, urls, metadata = zip(*self._rows, strict=True)
            self._start()
            columns = [
                pa.array(ids),
                pa.array(texts, pa.large_binary()).view(pa.large_string()),
                pa.array(sources),
                pa.array(urls, pa.string()),
                pa.array(metadata, pa.string()),
            ]
            yield pa.record_batch(columns, DOCUMENT_SCHEMA)


def document_id(corpus: str, source_id: str) -> str:
    """The id of a document in a corpus, in hex: its `digest`."""
    return digest(corpus, source_id).hex()


def digest(corpus: str, source_id: str) -> bytes:
    """blake2b-128 of the length of the corpus's name, the name and the source id: no two inputs agree."""
    return hashlib.blake2b(
        f"{len(corpus)}:{corpus}{source_id}".encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def own_id(value: str) -> str:
    """The source id of a document that brings its own id; never equal to a location."""
    return f"{OWN_ID}{value}"


def location(name: str, where: int) -> str:
    """The source id of a document known by its place in a unit: a row from 1, or a byte offset."""
    return f"at:{name}:{where}"


def metadata_json(values: dict[str, object]) -> str | None:
    """The values as JSON of at most about METADATA_BYTES; None for no values.

    `left_out` counts the values that did not fit or are nested too deeply. Values of types that JSON lacks
    (dates, decimals) are written as text.
    """
    if not values:
        return None
    encoded = _encoded(values)
    if encoded is None or len(encoded) > METADATA_BYTES:
        encoded = _encoded(_fitting(values)) or b""
    return encoded.decode()


def title(metadata: str | None, url: str | None) -> str | None:
    """What people call a document, by the JSON of its metadata, else its URL."""
    known = {name.lower(): value for name, value in orjson.loads(metadata).items()} if metadata else {}
    named = (known.get(name) for name in TITLES)
    return next((one for one in named if isinstance(one, str) and one.strip()), url)


def _encoded(values: dict[str, object]) -> bytes | None:
    """The values as JSON. None if they are nested deeper than orjson encodes; it decodes deeper values."""
    try:
        return orjson.dumps(values, default=_told)
    except TypeError:
        return None


def _told(value: object) -> object:
    """What stands for a value of a type that JSON lacks, the same in each process: a set has no order, and
    what Python tells of most objects ends in their address.
    """
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return ADDRESS.sub("", str(value))


def _fitting(values: dict[str, object]) -> dict[str, object]:
    fitting: dict[str, object] = {}
    left = METADATA_BYTES
    for name, value in values.items():
        encoded = _encoded({name: value})
        if encoded is not None and len(encoded) <= left:
            fitting[name] = value
            left -= len(encoded)
    return {**fitting, "left_out": len(values) - len(fitting)}
