"""CSV with a header row, read row by row so that a broken row costs that row only."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.formats.first_bytes import NOT_UTF8
from pipeline.sources.formats.rows import RowReader, no_text_column
from pipeline.sources.formats.streams import BlockStream, Counted, ahead
from pipeline.sources.source import Reason

# The first line of files for Excel, which says what separates the fields. An empty field may follow.
SEPARATOR_LINE = re.compile(r'sep=([^"]?)')
READ_CHARACTERS = 1 << 20  # at a time, of a row that is not kept
SAMPLE_BLOCKS = 16  # by which is decided what quotes mean
UNQUOTED = "\t|"  # separators that most programs write without putting fields in quotes
_IN_QUOTES = re.compile(r'"((?:[^"]|"")*)"')
_ESCAPED = re.compile(r'(?<!\\)((?:\\\\)*)\\"')


def read_csv(content: Iterator[bytes], reader: RowReader, separator: str) -> Iterator[pa.RecordBatch]:
    """The documents of a CSV file, whose fields `separator` separates. `row` is the line where the row ends;
    where a quote never closes, the line where the row begins. Raises what `content` raises.
    """
    csv.field_size_limit(MAX_DOCUMENT_BYTES)  # the default refuses texts over 128 KB
    first, content = ahead(content, SAMPLE_BLOCKS)
    escapes, quote = _dialect(_whole_lines(first), separator)
    counted = Counted(content)
    lines = _Lines(counted, escapes)
    rows = csv.reader(lines, strict=True, delimiter=separator, quotechar=quote)
    try:
        header = next(rows, [])
        if header and (named := SEPARATOR_LINE.fullmatch(header[0])) and not any(header[1:]):
            rows = csv.reader(lines, strict=True, delimiter=named[1] or separator)
            header = next(rows, [])
        header = [name.encode(errors="backslashreplace").decode() for name in header]
    except csv.Error as error:
        reader.reject(None, Reason.BROKEN_CSV, f"the header cannot be read: {error}", reader.bytes)
        return
    if header and (refused := no_text_column(header, reader.columns)):
        refused += _other_separator(header, separator)
        reader.reject(None, Reason.NO_TEXT, refused, reader.bytes)
        return
    while not reader.batches.done:
        lines.begin_row()
        row = _next_row(rows, lines, counted, reader)
        if row is None:
            return
        if row:
            yield from _read_row(lines.number, header, row, reader)


def _whole_lines(first: Sequence[bytes]) -> Sequence[str]:
    text = b"".join(first)
    if len(first) == SAMPLE_BLOCKS:
        text = text[: text.rfind(b"\n") + 1]
    return [*io.StringIO(text.decode("utf-8-sig", "surrogateescape"), newline="")]


def _other_separator(header: list[str], separator: str) -> str:
    """What to set where a CSV header is one field, in which another separator stands; else empty."""
    if len(header) != 1:
        return ""
    for other in (",", ";", "\t", "|"):
        if other != separator and other in header[0]:
            return f"; the fields are separated by {other!r}: set `separator: {json.dumps(other)}`"
    return ""


def _next_row(
    rows: Iterator[list[str]], lines: "_Lines", counted: Counted, reader: RowReader
) -> list[str] | None:
    """The next row, empty if it is blank or was set aside. None if there is no row, or if none can be read
    any more.
    """
    try:
        return next(rows, None)
    except RowTooLongError as error:
        if error.in_quotes:
            why = f"{error}; a quote that never closes? No row can be read from here on"
            lost = round(reader.bytes * counted.share_left(lines.share_of_row()))
            reader.reject(lines.first, Reason.TOO_LONG, why, lost)
            return None
        reader.reject(lines.number, Reason.TOO_LONG, str(error))
    except csv.Error as error:
        if lines.ended:
            why = "a quote that opens in this row never closes: no row can be read from here on"
            lost = round(reader.bytes * lines.share_of_row())
            reader.reject(lines.first, Reason.BROKEN_CSV, why, lost)
            return None
        began = f"; a quote opens in line {lines.first}" if lines.first < lines.number else ""
        why = f"{error}{began}: within a field in quotes, each quote is written twice"
        reader.reject(lines.number, Reason.BROKEN_CSV, why)
    return []


def _read_row(number: int, header: list[str], row: list[str], reader: RowReader) -> Iterator[pa.RecordBatch]:
    if len(row) != len(header):
        reader.reject(number, Reason.BROKEN_CSV, "the row has not as many fields as the header")
    elif not _is_utf8("".join(row)):
        reader.reject(number, Reason.INVALID_UTF8, f"the row holds bytes that are not UTF-8; {NOT_UTF8}")
    else:
        yield from reader.add(number, dict(zip(header, row, strict=True)))


class RowTooLongError(csv.Error):
    """A row has more characters than a document may have bytes. `in_quotes`: its line is not the first."""

    def __init__(self, in_quotes: bool):
        super().__init__(f"the row is longer than {MAX_DOCUMENT_BYTES} characters")
        self.in_quotes = in_quotes


class _Lines(Iterator[str]):
    """The lines of a row after another. Invalid bytes become surrogates, so that only their row is rejected.

    Where a backslash `escapes` quotes, they are doubled.

    Raises RowTooLongError in place of the line with which a row becomes too long; what follows can be read.
    """

    def __init__(self, content: Iterator[bytes], escapes: bool):
        self.number = self._characters = 0
        self.ended, self._escapes = False, escapes
        self.begin_row()
        raw = io.BufferedReader(BlockStream(content), 1 << 20)
        self._text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")

    def begin_row(self) -> None:
        self._row, self.first = 0, self.number + 1

    def share_of_row(self) -> float:
        """The share of this row in what was read."""
        return self._row / max(self._characters, 1)

    def __next__(self) -> str:
        line = self._text.readline(MAX_DOCUMENT_BYTES)
        if not line:
            self.ended = True
            raise StopIteration
        self.number += 1
        self._row += len(line)
        self._characters += len(line)
        if self._row < MAX_DOCUMENT_BYTES:
            return _doubled(line) if self._escapes else line
        while line and not line.endswith(("\n", "\r")):
            line = self._text.readline(READ_CHARACTERS)
        raise RowTooLongError(in_quotes=self.number > self.first)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _dialect(sample: Sequence[str], separator: str) -> tuple[bool, str | None]:
    """What quotes mean, by the first lines of a file. Returns whether a backslash comes before a quote within
    quotes, as Spark and MySQL write it, and the quote; None where quotes are characters like others.
    """
    if (broken := _broken(sample, separator)) and _broken(map(_doubled, sample), separator) < broken:
        return True, '"'
    return False, None if separator in UNQUOTED and _are_bare(sample, separator) else '"'


def _doubled(line: str) -> str:
    """The line with quotes doubled, as CSV wants it, where a backslash is before them."""
    return _ESCAPED.sub(r'\1""', line)


def _broken(lines: Iterable[str], separator: str) -> int:
    """How many rows cannot be read, or have not as many fields as the first. The last one may be cut off."""
    ended = False

    def following() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True

    rows = csv.reader(following(), strict=True, delimiter=separator)
    width, broken = 0, 0
    while not ended:
        try:
            row = next(rows, [])
        except csv.Error:
            broken += not ended
            continue
        width = width or len(row)
        broken += len(row) not in (0, width)
    return broken


def _are_bare(sample: Sequence[str], separator: str) -> bool:
    """Whether quotes are characters like others in these lines. They are if each line then has all fields,
    although quotes open fields that they do not close. They are not if any field doubles the quotes within
    it.
    """
    rows = [line.split(separator) for one in sample if (line := one.rstrip("\r\n"))]
    if len({*map(len, rows)}) != 1 or any(name[:1] == '"' for name in rows[0]):
        return False
    opened = [field for row in rows for field in row if field[:1] == '"']
    closed = [found[1] for field in opened if (found := _IN_QUOTES.fullmatch(field))]
    return len(closed) < len(opened) and not any('"' in field for field in closed)
