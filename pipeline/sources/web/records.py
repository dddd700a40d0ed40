"""The records of a web archive, and the bytes between them that belong to none."""

import io
import re

from warcio.archiveiterator import ArchiveIterator
from warcio.limitreader import LimitReader
from warcio.recordloader import ArcWarcRecord

_BEGINS = re.compile(rb"WARC/(?:1\.[01]|0\.1[78])\s*$|^filedesc://")
_LINE = 1 << 16  # bytes of garbage to look at together


class Records(ArchiveIterator):
    """As warcio's, but goes on at the next record where a record does not follow at once, or has no length.
    `skipped` counts the bytes that were passed over before the last record.
    """

    def __init__(self, content: io.RawIOBase):
        super().__init__(content)
        self.skipped = 0

    def _consume_blanklines(self) -> tuple[bytes | None, int]:
        if self.known_format == "arc":
            found: tuple[bytes | None, int] = super()._consume_blanklines()
            return found
        while line := self.reader.readline(_LINE):
            if begins := _BEGINS.search(line):
                self.skipped += begins.start()
                return line[begins.start() :], 0
            self.skipped += len(line) if line.strip() else 0
        return None, 0

    def _next_record(self, next_line: bytes | None) -> ArcWarcRecord:
        line = next_line or self._consume_blanklines()[0]
        if line is None:
            raise EOFError
        record = super()._next_record(line)
        if record.length is None:
            record.raw_stream = LimitReader(self.reader, 0)
        return record
