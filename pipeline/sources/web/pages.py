"""Web pages as text, made in another process, which a page can neither hang nor take down with more than
itself.
"""

import contextlib
import importlib.util
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from pipeline.sources.errors import SourceError
from pipeline.sources.rejects import Reason

WORKER = Path(__file__).with_name("page_worker.py")
# as page_worker.py, which cannot be imported where resiliparse is not installed
ASKED = struct.Struct("<III")
ANSWERED = struct.Struct("<II")


@dataclass(frozen=True)
class Page:
    """The main text of a page, and the charset in which it was read."""

    text: str
    charset: str


class PageExtractor:
    """One worker process, started again after each page that it did not survive. A page gets `seconds`."""

    def __init__(self, seconds: float):
        if importlib.util.find_spec("resiliparse") is None:
            raise SourceError(
                "reading web archives needs resiliparse and warcio: pip install 'groundwork[web]'"
            )
        self._seconds = seconds
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._worker:
            self._worker.kill()
            self._ended()

    def extract(self, page: bytes, charset: str) -> Page | tuple[Reason, str]:
        """The page's text; or why there is none. `charset`: what the HTTP header says, else what is in the
        page, else detected.
        """
        self._worker = self._worker or subprocess.Popen(
            [sys.executable, "-P", str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
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
            return Page(_exactly(self._worker.stdout, text_bytes).decode(), used)
        except (BrokenPipeError, EOFError):
            status = self._ended()
            if status == -signal.SIGALRM:
                return Reason.PAGE_TOOK_TOO_LONG, f"no text after {self._seconds} s"
            return Reason.PAGE_BROKE_EXTRACTION, f"the extraction ended with {_named(status)}"

    def _ended(self) -> int:
        assert self._worker and self._worker.stdout and self._worker.stdin
        status = self._worker.wait()
        self._worker.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what it did not read is still in the buffer
            self._worker.stdin.close()
        self._worker = None
        return status


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


def _named(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"
