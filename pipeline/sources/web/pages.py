"""The text of web pages, extracted in another process, so that a bad page can only lose itself."""

import contextlib
import importlib.util
import os
import signal
import struct
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Literal, Self

from pipeline.sources.source import Reason, RefusedError, SourceError
from pipeline.store.errors import install

WORKER = Path(__file__).with_name("page_worker.py")
# as in page_worker.py, which cannot be imported without resiliparse
ASKED = struct.Struct("<III")
ANSWERED = struct.Struct("<II")

MAX_PAGE_BYTES = 16 << 20
PAGE_SECONDS = 10.0  # of processor time, for a page that is a file

Extractor = Literal["resiliparse", "trafilatura"]
AllText = Literal["all"]  # of a page without menus, as of a book


class PageExtractor:
    """One worker process, restarted after each page that ended it. Each has `seconds` of processor time."""

    def __init__(self, seconds: float, extractor: Extractor | AllText = "resiliparse"):
        if importlib.util.find_spec("resiliparse") is None:
            raise SourceError(f"reading web pages needs resiliparse: run {install('web')}")
        self._seconds, self._extractor = seconds, extractor
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._worker:
            self._worker.kill()
            self._ended()

    def extract(self, page: bytes, charset: str) -> tuple[str, str]:
        """The main text of a page, and the charset by which it was decoded: that of the HTTP header, which is
        detected where it is unknown. Raises RefusedError.
        """
        self._worker = self._worker or subprocess.Popen(
            [sys.executable, "-P", str(WORKER), self._extractor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._worker.stdin and self._worker.stdout
        declared = charset.encode("ascii", "replace")
        try:
            self._worker.stdin.write(
                ASKED.pack(len(declared), len(page), max(1, round(self._seconds * 1e6))) + declared + page
            )
            self._worker.stdin.flush()
            name_bytes, text_bytes = ANSWERED.unpack(_exactly(self._worker.stdout, ANSWERED.size))
            used = _exactly(self._worker.stdout, name_bytes).decode()
            return _exactly(self._worker.stdout, text_bytes).decode(), used
        except (BrokenPipeError, EOFError):
            status = self._ended()
            if status == -signal.SIGPROF:
                why = f"no text after {self._seconds} s of processor time"
                raise RefusedError(Reason.PAGE_TOOK_TOO_LONG, why) from None
            ended = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise RefusedError(Reason.PAGE_BROKE_EXTRACTION, f"the extraction ended with {ended}") from None

    def _ended(self) -> int:
        assert self._worker and self._worker.stdout and self._worker.stdin
        status = self._worker.wait()
        self._worker.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # the buffer still holds what the worker did not read
            self._worker.stdin.close()
        self._worker = None
        return status


def page_text(page: bytes, encoding: str, extractor: Extractor | AllText = "resiliparse") -> str:
    """The text of a page. With UTF-8, which is the usual setting, the page itself may say otherwise. Raises
    RefusedError, and SourceError where the extra `web` is missing.
    """
    return _extractor(os.getpid(), extractor).extract(page, "" if encoding == "utf-8" else encoding)[0]


@cache
def _extractor(process: int, extractor: Extractor | AllText) -> PageExtractor:
    """The extractor of this process, for all files that the process reads: to start one for each file would
    take longer than to read the file. It ends with the process.
    """
    return PageExtractor(PAGE_SECONDS, extractor)


def installed(extractor: Extractor) -> str:
    """The name and version of an extractor, as in `trafilatura-2.3.1`. Raises SourceError when its package
    is missing.
    """
    try:
        return f"{extractor}-{version(extractor)}"
    except PackageNotFoundError:
        raise SourceError(f"`extractor: {extractor}` needs {extractor}: run {install('web')}") from None


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content
