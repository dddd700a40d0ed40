"""HTML files: the main text of a page, without menus and notices, as from a web archive."""

import os
from functools import cache

from pipeline.sources.web.pages import AllText, Extractor, PageExtractor

PAGE_SECONDS = 10.0
_UTF8 = "utf-8"


def page_text(page: bytes, encoding: str, extractor: Extractor | AllText = "resiliparse") -> str:
    """The text of a page. With UTF-8, which is the usual setting, the page itself may say otherwise. Raises
    RefusedError, and SourceError where the extra `web` is missing.
    """
    return _extractor(os.getpid(), extractor).extract(page, "" if encoding == _UTF8 else encoding)[0]


@cache
def _extractor(process: int, extractor: Extractor | AllText) -> PageExtractor:
    """The extractor of this process, for all files that the process reads: to start one for each file would
    take longer than to read the file. It ends with the process.
    """
    return PageExtractor(PAGE_SECONDS, extractor)
