"""The records of a web archive, and the bytes between them that belong to none."""

import io
import re

from warcio.archiveiterator import ArchiveIterator
from warcio.bufferedreaders import DecompressingBufferedReader
from warcio.limitreader import LimitReader
from warcio.recordloader import ArcWarcRecord

_BEGINS = re.compile(rb"WARC/(?:1\.[01]|0\.1[78])\s*$|^filedesc://")
# No optional character before the line: searching would be twenty times as slow.
_WITHIN = re.compile(rb"\n(?=WARC/(?:1\.[01]|0\.1[78])\r?\n[A-Za-z-]{1,40}:)")
_LINE = 1 << 16  # bytes of garbage to look at together
_MOST_HELD = 64 << 20  # bytes of a record in which the beginning of another is looked for
_MARK = 64  # bytes; longer than what _WITHIN matches
_MOST_BLANK = 8  # lines between two records


class Records(ArchiveIterator):
    """Reads records as warcio does, but goes on at the next record where no record follows at once, or where
    one has no length, or too large a one. `skipped` counts the bytes that were passed over before the last
    record. `swallowed` counts those of other records that the length of the last record takes in.
    """

    def __init__(self, content: io.RawIOBase):
        super().__init__(content)
        self.reader = _Reader(self.fh)
        self.skipped = self.swallowed = 0

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
        self.swallowed = 0
        if record.length is None:
            record.raw_stream = LimitReader(self.reader, 0)
        elif self.known_format == "warc":
            self._end_before_next(record.raw_stream)
        return record

    def _end_before_next(self, block: LimitReader) -> None:
        """Ends the block of a record where another begins within, unless the block is whole and a record or
        the end of the file follows: then the page is about web archives.
        """
        size = min(block.limit, _MOST_HELD)
        held = self.reader.read(size)
        if b"\nW" in held[-_MARK:]:  # only then, since what follows may be damaged
            held += self.reader.read(_MARK)
        begins = _WITHIN.search(held)
        whole = False
        if begins and begins.end() < size and block.limit == size <= len(held):
            self.reader.give_back(held[size:])
            following = self._next_lines()
            held = held[:size] + following
            whole = not following.strip() or bool(_BEGINS.match(following.lstrip()))
        self.reader.give_back(held)
        if begins and begins.end() < size and not whole:
            self.swallowed = block.limit - begins.end()
            block.limit = begins.start()

    def _next_lines(self) -> bytes:
        """The blank lines that follow, and the line after them."""
        lines = b""
        for _ in range(_MOST_BLANK):
            lines += self.reader.readline(_LINE)
            if lines.strip():
                break
        return lines


class _Reader(DecompressingBufferedReader):
    """As warcio's, but takes back what was read."""

    def __init__(self, content: io.RawIOBase):
        super().__init__(content)
        self._again = io.BytesIO()

    def give_back(self, content: bytes) -> None:
        self._again = io.BytesIO(content + self._again.read())

    def read(self, length: int | None = None) -> bytes:
        again = self._again.read(length)
        more: bytes = super().read(None if length is None else length - len(again))
        return again + more

    def readline(self, length: int | None = None) -> bytes:
        again = self._again.readline(length)
        if again.endswith(b"\n") or len(again) == length:
            return again
        more: bytes = super().readline(None if length is None else length - len(again))
        return again + more
