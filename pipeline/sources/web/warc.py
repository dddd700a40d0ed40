"""Web archives: the main text of the pages in WARC files, and the texts of WET files unchanged."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import Field

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, Batches, SourceDocument, metadata_json, own_id
from pipeline.sources.file_by_file import read_files, units_of
from pipeline.sources.formats.compression import BrokenCompressionError, format_of
from pipeline.sources.formats.streams import BlockStream, Counted, blocks
from pipeline.sources.listing import Paths, listed
from pipeline.sources.source import MaxDocuments, Reason, RefusedError, Rejects, SourceError, Unit
from pipeline.sources.source_file import Hash, SourceFile, size_of
from pipeline.sources.web.content import text_of, undone
from pipeline.sources.web.pages import MAX_PAGE_BYTES, Extractor, PageExtractor, installed
from pipeline.store.fingerprint import file_sha256

if TYPE_CHECKING:  # the extra `web`
    from warcio.recordloader import ArcWarcRecord

FORMATS = (".warc", ".wet")
PAGES = ("text/html", "application/xhtml+xml")
TEXT = "text/plain"
MOST_UNDECODABLE = 0.05  # share of a page's characters that its charset does not have
ABOUT_THE_CRAWL = ("warcinfo", "request", "metadata")  # records without content, which are skipped


class WarcConfig(Paths):
    """WARC and WET files of a web crawl, plain or compressed. Needs the extra `web`."""

    kind: Literal["warc"] = "warc"
    """Selects this source."""
    extractor: Extractor = "resiliparse"
    """The library that extracts the main text of a page, without menus, comments and notices. `trafilatura`
    leaves less of these in the text and takes several times as long: choose it if the crawl is small.
    """
    page_seconds: float = Field(10.0, gt=0)
    """Seconds of processor time that one page may take. A page that takes longer is set aside."""
    max_documents: MaxDocuments = None


@dataclass(frozen=True)
class WarcSource:
    """One unit per file, or one for all with `max_documents`. A document's id is that of its record."""

    corpus: str
    config: WarcConfig
    sha256: Hash = file_sha256

    @property
    def version(self) -> str:
        extractor = self.config.extractor
        return "warc-8" if extractor == "resiliparse" else f"warc-8 {installed(extractor)}"

    def units(self) -> list[Unit]:
        files = listed(self.corpus, self.config.patterns(), lambda name: format_of(name)[0] in FORMATS)
        return units_of(files, self.config.max_documents, self.sha256)

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        batches = Batches(self.corpus, rejects, self.config.max_documents)
        with PageExtractor(self.config.page_seconds, self.config.extractor) as extractor:

            def documents(name: str, file: SourceFile) -> Iterator[pa.RecordBatch]:
                content = blocks(file, format_of(name)[1])
                return _Records(name, batches, extractor).read(content, size_of(file))

            yield from read_files(unit.files, batches, documents)


@dataclass(frozen=True)
class _Records:
    """Turns the records of one file into documents; `row` is the number of the record from 1."""

    file: str
    batches: Batches
    extractor: PageExtractor

    def reject(self, number: int, reason: Reason, why: str, lost_bytes: int = 0) -> None:
        self.batches.reject(self.file, number, reason, why, lost_bytes)

    def read(self, content: Iterator[bytes], size: int) -> Iterator[pa.RecordBatch]:
        """`size`: of the file on disk."""
        from warcio.exceptions import ArchiveLoadFailed

        from pipeline.sources.web.records import Records

        number, read = 0, Counted(content)
        records, gaps = Records(BlockStream(read)), Counter[int]()
        try:
            for number, record in enumerate(records, start=1):
                gaps[number] += records.skipped
                records.skipped = 0
                if records.swallowed:
                    why = f"the next record begins {records.swallowed:,} bytes before its Content-Length ends"
                    self.reject(number, Reason.BROKEN_RECORD, why)
                else:
                    self._add(number, record)
                yield from self.batches.full()
                if self.batches.done:
                    return
        except (ArchiveLoadFailed, ValueError) as error:
            why = f"no record can be read from here on: {error}"
            self.reject(number + 1, Reason.BROKEN_RECORD, why, round(size * read.share_left()))
        gaps[number + 1] += records.skipped
        for before, skipped in (+gaps).items():
            why = f"{skipped:,} bytes before it belong to no record"
            self.reject(before, Reason.BROKEN_RECORD, why, round(size * skipped / read.bytes))

    def _add(self, number: int, record: "ArcWarcRecord") -> None:
        """Whatever the library raises on the content of a record costs that record alone."""
        try:
            if document := self._document(number, record):
                self.batches.add(self.file, document)
        except RefusedError as error:
            self.reject(number, error.reason, str(error))
        except (OSError, SourceError, BrokenCompressionError):  # of the file
            raise
        except Exception as error:
            why = f"the record cannot be read: {type(error).__name__}: {error}"
            self.reject(number, Reason.BROKEN_RECORD, why)

    def _document(self, number: int, record: "ArcWarcRecord") -> SourceDocument | None:
        """None for a record without content. Raises RefusedError."""
        if record.rec_type == "response" and record.http_headers is not None:
            text, charset = self._page(record)
        elif record.rec_type == "conversion":
            text, charset = text_of(_content(record, MAX_DOCUMENT_BYTES), "utf-8")
        elif record.rec_type in ABOUT_THE_CRAWL:
            return None
        else:
            why = f"a record of type {record.rec_type} without the page of an HTTP response"
            raise RefusedError(Reason.NOT_A_PAGE, why)
        headers = record.rec_headers
        known: dict[str, Any] = {"date": headers.get_header("WARC-Date"), "charset": charset}
        record_id = (headers.get_header("WARC-Record-ID") or "").strip("<>")
        if not record_id:
            raise RefusedError(Reason.BAD_ID, "the record has no WARC-Record-ID")
        url = headers.get_header("WARC-Target-URI")
        name, url, metadata = own_id(record_id), url and url.strip("<>"), metadata_json(known)
        return SourceDocument(name, text, number, self.file, url, metadata)

    def _page(self, record: "ArcWarcRecord") -> tuple[str, str]:
        """The text of a page and its charset. Raises RefusedError."""
        status = record.http_headers.get_statuscode()
        kind, _, parameters = (record.http_headers.get_header("Content-Type") or "").partition(";")
        if status != "200" or kind.strip().lower() not in (*PAGES, TEXT):
            why = f"HTTP status {status}, content type {kind.strip() or 'not given'}"
            raise RefusedError(Reason.NOT_A_PAGE, why)
        codings = record.http_headers.get_header("Content-Encoding") or ""
        content = undone(_content(record, MAX_PAGE_BYTES), codings, MAX_PAGE_BYTES)
        if kind.strip().lower() == TEXT:
            return text_of(content, _charset(parameters))
        text, charset = self.extractor.extract(content, _charset(parameters))
        undecodable = text.count("\ufffd") / max(1, len(text))
        if undecodable > MOST_UNDECODABLE:
            why = f"{undecodable:.0%} of the page's characters cannot be decoded as {charset}"
            raise RefusedError(Reason.INVALID_UTF8, why)
        return text, charset


def _content(record: "ArcWarcRecord", limit: int) -> bytes:
    """The content without the chunks in which it was sent. Raises RefusedError."""
    from warcio.bufferedreaders import ChunkedDataReader

    stream, headers = record.raw_stream, record.http_headers
    if headers and (headers.get_header("Transfer-Encoding") or "").lower() == "chunked":
        stream = ChunkedDataReader(stream)
    if record.length is None:
        raise RefusedError(Reason.BROKEN_RECORD, "the record has no Content-Length")
    content: bytes = stream.read(limit + 1)
    if len(content) > limit:
        raise RefusedError(Reason.TOO_LONG, f"more than {limit} bytes")
    if record.raw_stream.limit > 0:
        raise RefusedError(Reason.BROKEN_RECORD, f"the record ends {record.raw_stream.limit} bytes early")
    return content


def _charset(parameters: str) -> str:
    """The charset among parameters: UTF-8 for `charset="UTF-8"; boundary=x`. Empty if there is none."""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""
