"""JSON that is not one object in each line: an array, objects over several lines, several in one line."""

import codecs
import json
import re
from collections.abc import Iterator

import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.formats.compression import BrokenCompressionError
from pipeline.sources.formats.jsonl import read_lines
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.formats.streams import Counted
from pipeline.sources.source import Reason, RefusedError

LOOKED_AHEAD = 1 << 16  # characters in which the end of a value is looked for first
MOST_SHAPES = 100  # sets of keys that are remembered
_PIECE = 1 << 12  # characters
_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")
_OBJECT = re.compile(r"(?<=[\s,\[\]}])\{")
_FIRST_KEY = re.compile(r'\{\s*("(?:[^"\\]|\\.)*"\s*:)')
_LINE_ENDS = str.maketrans("\r\n", "  ")  # only between the tokens of a value: strings have none
_DECODER = json.JSONDecoder()
_UNKNOWN = "where the next value begins cannot be told, so what follows is not read"


def read_json_values(content: Iterator[bytes], reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of a stream of JSON values. `row` is the number of the value. The brackets and commas of
    an array are skipped. Raises what `content` raises.

    After a broken value, reading goes on at the next line that begins as the line of this value does, which
    indented files have, or at the next object with the keys of an earlier one. Without any, the rest is set
    aside.
    """
    yield from read_lines(_lines(content, reader), reader)


def _lines(content: Iterator[bytes], reader: RowReader) -> Iterator[bytes]:
    """Each value in one line."""
    read = Counted(content)
    text, number = _Text(read), 0
    while text.begins_a_value():
        number += 1
        try:
            value = text.value()
        except RefusedError as error:
            if text.damage:
                raise text.damage from None
            lost = round(reader.bytes * read.share_left(text.unused_share()))
            reader.reject(number, error.reason, f"{error}; {_UNKNOWN}", lost)
            return
        yield value.translate(_LINE_ENDS).encode("utf-8", "surrogateescape")
    if text.damage:
        raise text.damage


class _Text:
    """A text of which a part is held: what was read and not yet taken."""

    def __init__(self, content: Iterator[bytes]):
        # Bytes that are no UTF-8 come out again as they are, and cost their value alone.
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._content = map(decoder.decode, content)
        self._last = lambda: decoder.decode(b"", final=True)
        self._held, self._start = "", 0
        self._indentation = ""
        self._shapes: set[frozenset[str]] = set()
        self._ended = False
        self.damage: BrokenCompressionError | None = None  # after which there is no more content

    def begins_a_value(self) -> bool:
        """Skips what stands before a value. False if none follows."""
        while self._hold(1):
            found = _BETWEEN.match(self._held, self._start)
            assert found
            self._indentation = found[0].rpartition("\n")[2] if "\n" in found[0] else self._indentation
            self._start = found.end()
            if self._start < len(self._held):
                return True
        return False

    def value(self) -> str:
        """Takes the next value, or what is there of a broken one. Raises RefusedError without an end."""
        size = LOOKED_AHEAD
        while True:
            whole = not self._hold(size)
            try:
                value, end = _DECODER.raw_decode(self._held, self._start)
            except (ValueError, RecursionError) as error:
                # What is held may end within the value. Only within a text, the error is at its beginning.
                place, why = getattr(error, "pos", self._start), getattr(error, "msg", str(error))
                near = why.startswith("Unterminated") or place > len(self._held) - LOOKED_AHEAD // 2
                if whole or not near:
                    return self._broken(place, why)
            else:
                if end < len(self._held) or whole:  # a number may go on
                    if isinstance(value, dict) and len(self._shapes) < MOST_SHAPES:
                        self._shapes.add(frozenset(value))
                    return self._take(end)
            if size > MAX_DOCUMENT_BYTES:
                raise RefusedError(Reason.TOO_LONG, f"the value is longer than {MAX_DOCUMENT_BYTES} bytes")
            size *= 2

    def unused_share(self) -> float:
        """The share of the held text that was not taken."""
        return 1 - self._start / max(1, len(self._held))

    def _broken(self, place: int, why: str) -> str:
        """Takes a broken value up to where the next one begins. Raises RefusedError."""
        line = re.compile(rf"\n{re.escape(self._indentation)}(?=\{{)")
        offset, size = place - self._start, LOOKED_AHEAD
        while True:
            whole = not self._hold(size)
            if found := line.search(self._held, self._start + offset):
                return self._take(found.end())
            if end := self._next_alike():
                return self._take(end)
            if whole or size > MAX_DOCUMENT_BYTES:
                raise RefusedError(Reason.INVALID_JSON, f"{why} (character {offset + 1} of the value)")
            size *= 2

    def _next_alike(self) -> int | None:
        """Where the next whole object begins that has the keys of an earlier value. Objects within values
        have others, as a rule. If no value was whole yet, the first key of the broken one decides.
        """
        own = _FIRST_KEY.match(self._held, self._start)
        for candidate in _OBJECT.finditer(self._held, self._start + 1):
            key = _FIRST_KEY.match(self._held, candidate.start())
            if not self._shapes and not (own and key and own[1] == key[1]):
                continue
            keys = self._keys(candidate.start())
            if keys in self._shapes or (keys and not self._shapes):
                return candidate.start()
        return None

    def _keys(self, start: int) -> frozenset[str] | None:
        """The keys of the object at `start`; None if it is broken. The time that an error takes grows with
        what stands before it, so a piece is looked at.
        """
        size = _PIECE
        while True:
            piece = self._held[start : start + size]
            try:
                return frozenset(_DECODER.raw_decode(piece)[0])
            except (ValueError, RecursionError) as error:
                place, why = getattr(error, "pos", 0), getattr(error, "msg", "")
                cut = len(piece) == size and (why.startswith("Unterminated") or place > size // 2)
                if not cut:
                    return None
            size *= 8

    def _take(self, end: int) -> str:
        taken = self._held[self._start : end]
        self._start = end
        return taken

    def _hold(self, size: int) -> bool:
        """Reads until so many characters are held. False if the text ends before."""
        held = len(self._held) - self._start
        if held < size and not self._ended:
            parts = [self._held[self._start :]]
            while held < size and not self._ended:
                try:
                    part = next(self._content, None)
                except BrokenCompressionError as error:
                    self.damage, part = error, None
                if part is None:
                    self._ended, part = True, self._last()
                parts.append(part)
                held += len(part)
            self._held, self._start = "".join(parts), 0
        return held >= size
