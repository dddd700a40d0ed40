"""HTML files: the main text of a page, without menus and notices, as from a web archive."""

import os
from collections.abc import Iterator
from functools import cache

import pyarrow as pa

from pipeline.sources.formats.rows import RowReader
from pipeline.sources.formats.text_files import read_found, whole
from pipeline.sources.source import RefusedError
from pipeline.sources.web.pages import MAX_PAGE_BYTES, AllText, Extractor, PageExtractor

PAGE_SECONDS = 10.0
_UTF8 = "utf-8"


def read_page(
    content: Iterator[bytes], reader: RowReader, encoding: str, piece_bytes: int | None
) -> Iterator[pa.RecordBatch]:
    """The text of an HTML file, as `read_text` gives it. Raises SourceError where the extra `web` is missing,
    and what `content` raises.
    """
    for page in whole(content, reader, MAX_PAGE_BYTES, f"more than {MAX_PAGE_BYTES} bytes of HTML"):
        try:
            text = page_text(page, encoding)
        except RefusedError as error:
            reader.reject(1, error.reason, str(error), reader.bytes)
        else:
            yield from read_found(text, reader, piece_bytes)


def page_text(page: bytes, encoding: str, extractor: Extractor | AllText = "resiliparse") -> str:
    """The text of a page. With UTF-8, which is the usual setting, the page itself may say otherwise. Raises
    RefusedError and SourceError.
    """
    return _extractor(os.getpid(), extractor).extract(page, "" if encoding == _UTF8 else encoding)[0]


@cache
def _extractor(process: int, extractor: Extractor | AllText) -> PageExtractor:
    """The extractor of this process, for all files that the process reads: to start one for each file would
    take longer than to read the file. It ends with the process.
    """
    return PageExtractor(PAGE_SECONDS, extractor)
