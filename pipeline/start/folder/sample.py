"""A sample of one file: how it is to be read, and its first texts, by the readers of the sources."""

import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.files import (
    ENCODED_BY_THEMSELVES,
    JSON_LINES,
    PAGES,
    PROGRAMS,
    READ_AS_A_WHOLE,
    SEPARATORS,
    SUBTITLES,
    TEXT,
    ZIPPED,
    FilesConfig,
    FilesSource,
)
from pipeline.sources.formats.compression import BrokenCompressionError, format_of
from pipeline.sources.formats.conversations import Format, columns_of
from pipeline.sources.formats.first_bytes import exported_chat, other_encoding
from pipeline.sources.formats.rows import DEFAULT_ID_COLUMN, Row, RowReader
from pipeline.sources.formats.streams import blocks
from pipeline.sources.source import Reason, Rejected, SourceError, Unit
from pipeline.sources.source_file import LocalFile, size_of
from pipeline.start.folder.encodings import legacy_encoding
from pipeline.start.folder.rows import (
    OF_CHATS,
    OF_PAGES,
    TEXT_COLUMNS,
    column_of_text,
    is_name,
    list_of_rows,
    nested_text,
    talks_in,
    transcripts_in,
    without_text,
)

HEAD_BYTES, PACKED_HEAD_BYTES = 256 << 10, 1 << 20  # of a file that is not, and that is compressed
# Of a table whose first row does not fit into that, more and more is read, up to the longest text.
LONGEST_HEAD_BYTES = MAX_DOCUMENT_BYTES
PIECE_BYTES = 16 << 10  # of plain text that is judged as one document
MOST_DOCUMENTS, MOST_EMPTY = 64, 4_096  # of a file, and rows of which many have no text
BLANK = (Reason.EMPTY_TEXT, Reason.NULL_TEXT)
PACKED_SHARE = 3.0  # bytes that a compressed byte usually becomes
_LETTER = re.compile(r"\w")
# With which data sets in files of plain text end a document.
ENDS_OF_DOCUMENTS = ("<|endoftext|>", "<|end_of_text|>", "<|eos|>", "<eos>", "</s>", "[EOT]", "[EOS]")


@dataclass(frozen=True)
class Shape:
    """How files are read: files of one shape fit into one corpus. `text_column` is None for plain text and
    for conversations, `separator` for all but CSV with an unusual one, `document_separator` for all but plain
    text whose documents end with a mark.
    """

    plain: bool
    format: Format = "text"
    text_column: str | None = None
    encoding: str = "utf-8"
    separator: str | None = None
    document_separator: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether a file is one document, unless it is cut into pieces."""
        return self.plain and self.document_separator is None

    @property
    def is_transcript(self) -> bool:
        """Whether files of text are conversations."""
        return self.plain and self.format == "chat"


@dataclass(frozen=True)
class FileSample:
    """The first `texts` of a file, or the `problem` for which it has none. `text_share` is the bytes of text
    for each byte on disk. `columns` are those of its rows, `blank` is the share of the rows that
    have no text, and some of them may have ids.
    """

    shape: Shape | None
    texts: tuple[str, ...] = ()
    text_share: float = 0.0
    columns: frozenset[str] = frozenset()
    blank: float = 0.0
    has_ids: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Head(LocalFile):
    """The first bytes of a file, as the file."""

    most: int = HEAD_BYTES

    def open(self) -> BinaryIO:
        with super().open() as file:
            return io.BytesIO(file.read(self.most))


class _AnyColumns(FilesConfig):
    """Reads rows whatever columns they have, conversations too."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def companions(self) -> tuple[str, ...]:
        return tuple({*TEXT_COLUMNS, *columns_of("chat"), *columns_of("preferences")})


@dataclass(frozen=True)
class _RowCollector(RowReader):
    """Keeps the rows of a file as they are. Of rows whose column of text is empty, many are read: a table
    that is sorted by its text begins with them.
    """

    rows: list[Row] = field(kw_only=True)

    def add(self, number: int, row: Row) -> Iterator[pa.RecordBatch]:
        # Old writers of Parquet do not mark strings.
        row = {
            name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            for name, value in row.items()
        }
        self.rows.append(row)
        named = [value for name, value in row.items() if name.lower() in TEXT_COLUMNS]
        if not named or any(named) or number >= MOST_EMPTY:
            self.batches.accepted += 1
        yield from ()


@dataclass(frozen=True)
class _FirstRows(RowReader):
    """Reads the first rows, however few of them are good: Parquet has no head that ends."""

    def add(self, number: int, row: Row) -> Iterator[pa.RecordBatch]:
        yield from super().add(number, row)
        if number >= MOST_EMPTY:
            self.batches.accepted = MOST_DOCUMENTS


@dataclass(frozen=True)
class _Beginning:
    """The beginning of a file: its first `size` bytes as the file `head`, and what they hold, which is the
    `texts` of plain text, or `rows`.
    """

    head: LocalFile
    size: int
    encoding: str
    separator: str | None
    texts: list[str]
    rows: list[Row]
    rejects: list[Rejected]

    @property
    def is_cut(self) -> bool:
        """Whether it ends within the first row."""
        return not self.rows and [reject.row is None for reject in self.rejects] == [False]


def sampled(name: str, file: LocalFile) -> FileSample:
    """The sample of a file. A file that cannot be read, or not to the end, since others write and delete
    files meanwhile, has the reason as its `problem`.
    """
    try:
        return _sampled(name, file)
    except OSError as error:
        return FileSample(None, problem=error.strerror or str(error))
    except (SourceError, pa.ArrowInvalid) as error:  # of a package that is missing; of a table that was cut
        return FileSample(None, problem=str(error))


def _sampled(name: str, file: LocalFile) -> FileSample:
    plain, compression = format_of(name)
    size = file.size()
    beginning = _beginning(name, file)
    rows = beginning.rows
    if any(beginning.texts) and not any(map(_LETTER.search, beginning.texts)):
        problem = f"holds neither letters nor digits in its first {beginning.size:,} bytes"
        return FileSample(None, problem=problem)
    columns = frozenset(name for row in rows for name in row)
    table = file.path if plain == ".parquet" else None
    shape, texts = _shape_and_texts(plain, beginning)
    if shape is None or not texts:
        return FileSample(None, columns=columns, problem=_without_text(beginning, table))
    blank, problem = _as_the_job_reads(name, beginning.head, shape)
    share = _share_of_text(plain, beginning, texts, size)
    problem = _problem_of_column(plain, rows, shape, table) or problem
    is_one_object = plain in JSON_LINES and len(rows) == 1
    if not problem and is_one_object and share < 0.5 and _may_be_settings(shape):
        problem = "holds one object that is not mostly text, as settings are"
    problem = next((why for known, why in OF_CHATS if columns >= known), problem)
    if plain in PAGES:
        start = _start(file, compression)
        problem = next((why for mark, why in OF_PAGES.items() if mark in start), problem)
    if problem:
        return FileSample(None, columns=columns, problem=_of_one_object(rows) or problem)
    has_ids = any(row.get(DEFAULT_ID_COLUMN) not in ("", None) for row in rows)
    share = share if plain in ZIPPED else min(share, 1.0)
    unpacked = _unpacked_share(plain, compression, file, size) * _as_utf8(texts, shape.encoding)
    return FileSample(shape, tuple(texts), share * unpacked, columns, blank, has_ids)


def _beginning(name: str, file: LocalFile) -> _Beginning:
    """Reads the beginning of a file, and more of it where that ends within the first row."""
    plain, compression = format_of(name)
    is_whole = plain in (".parquet", *READ_AS_A_WHOLE)
    most = size_of(file) if is_whole else PACKED_HEAD_BYTES if compression else HEAD_BYTES
    head = file if is_whole else Head(file.path, most=most)
    says_it = plain in (".parquet", *ENCODED_BY_THEMSELVES)
    encoding = "utf-8" if says_it else _encoding(_start(head, compression))
    found = _read(name, head, most, encoding)
    longest = min(size_of(file), LONGEST_HEAD_BYTES) if plain in (*JSON_LINES, *SEPARATORS) else 0
    while found.is_cut and most < longest:
        most *= 8
        found = _read(name, Head(file.path, most=most), most, encoding)
    return found


def _shape_and_texts(plain: str, beginning: _Beginning) -> tuple[Shape | None, list[str]]:
    """The shape of a file, and its first documents as texts. The shape is None without a text."""
    encoding, texts = beginning.encoding, beginning.texts
    if beginning.rows:
        return _of_rows(beginning.rows, encoding, beginning.separator)
    if not texts:
        return None, []
    whole = "".join(texts)
    end = _end_of_documents(whole) if plain in TEXT else None
    documents = (
        [whole] if end is None else [one for text in whole.split(end) if (one := text.strip("\n")).strip()]
    )
    documents = documents[:MOST_DOCUMENTS]
    said = transcripts_in(documents) if plain in TEXT and plain not in PROGRAMS else []
    shape = Shape(True, "chat" if said else "text", encoding=encoding, document_separator=end)
    return shape, said or (texts if end is None else documents)


def _problem_of_column(plain: str, rows: Sequence[Row], shape: Shape, table: Path | None) -> str:
    """Why the chosen column does not hold the text; empty if it does, or if the files have no columns."""
    if (column := shape.text_column) is None:
        return ""
    if plain in SEPARATORS and not is_name(column):
        return "its first row does not name the column of its text: write the names of the columns there"
    if nested := nested_text(rows, column, table):
        return f"its text is within the nested column {nested!r}: write it into a column of its own"
    return ""


def _share_of_text(plain: str, beginning: _Beginning, texts: Sequence[str], size: int) -> float:
    """Bytes of text for each unpacked byte of a file of `size` bytes, by its beginning."""
    if rows := beginning.rows:
        in_all = sum(len(name) + len(str(value)) + 6 for row in rows for name, value in row.items())
        return sum(len(text.encode("utf-8", "replace")) for text in texts) / in_all
    if plain in (*ENCODED_BY_THEMSELVES, *SUBTITLES):
        return sum(len(text.encode()) for text in texts) / max(1, min(beginning.size, size))
    return 1.0


def _as_utf8(texts: Sequence[str], encoding: str) -> float:
    """Bytes of UTF-8 for each byte in the encoding of the file: half of one in English UTF-16."""
    text = "".join(texts)
    return len(text.encode("utf-8", "replace")) / len(text.encode(encoding, "replace"))


def _unpacked_share(plain: str, compression: str, file: LocalFile, size: int) -> float:
    """Unpacked bytes for each byte of a file of `size` bytes."""
    if plain == ".parquet":
        metadata = pq.read_metadata(file.path)
        groups = range(metadata.num_row_groups)
        return sum(metadata.row_group(number).total_byte_size for number in groups) / max(1, size)
    return PACKED_SHARE if compression else 1.0


def _read(name: str, head: LocalFile, size: int, encoding: str) -> _Beginning:
    """What a head of so many bytes holds. Of a table, with the first separator that makes several columns."""
    plain = format_of(name)[0]
    config = _AnyColumns(paths=(str(head.path),), encoding=encoding, max_documents=MOST_DOCUMENTS)
    ways = []
    for separator in (None, ";", "\t", "|") if plain in SEPARATORS else (None,):
        rows: list[Row] = []
        rejects: list[Rejected] = []
        source = FilesSource(
            "sample",
            config.model_copy(update={"separator": separator, "piece_bytes": PIECE_BYTES}),
            row_reader=partial(_RowCollector, rows=rows),
        )
        unit = Unit(name, "", 0, files=((name, head),))
        texts = [text for batch in source.read(unit, rejects) for text in batch.column("text").to_pylist()]
        ways.append(_Beginning(head, size, encoding, separator, texts, rows, rejects))
        if len(rows[0] if rows else ()) > 1:
            return ways[-1]
    return ways[0]


def _as_the_job_reads(name: str, head: LocalFile, shape: Shape) -> tuple[float, str]:
    """The share of the rows that are blank, and why most of the others cannot be read; empty if they can."""
    config = FilesConfig(
        paths=(str(head.path),),
        format=shape.format,
        text_column=shape.text_column or "text",
        id_column="",  # ids that repeat are no reason to refuse a file
        encoding=shape.encoding,
        separator=shape.separator,
        document_separator=shape.document_separator,
        piece_bytes=PIECE_BYTES,
        max_documents=MOST_DOCUMENTS,
    )
    rejects: list[Rejected] = []
    source = FilesSource("sample", config, row_reader=_FirstRows)
    unit = Unit(name, "", 0, files=((name, head),))
    documents = sum(batch.num_rows for batch in source.read(unit, rejects))
    blank = sum(reject.rows for reject in rejects if reject.reason in BLANK)
    broken = [reject for reject in rejects if reject.reason not in BLANK]
    # The last row of a head is cut as a rule.
    if sum(one.rows for one in broken) > documents + 1 or not documents:
        where = f"row {broken[0].row}: " if broken and broken[0].row is not None else ""
        problem = f"most of it cannot be read: {where}{broken[0].detail}" if broken else "holds no text"
        return 0.0, problem
    return blank / (blank + documents), ""


def _start(file: LocalFile, compression: str) -> bytes:
    with suppress(BrokenCompressionError):  # a head ends too early; damage is reported by the reader
        return next(blocks(file, compression), b"")
    return b""


def _encoding(start: bytes) -> str:
    """UTF-8 unless the bytes show that they are none: as UTF-16, ISO 2022, or by most that is not ASCII."""
    if found := other_encoding(start):
        return found
    wrong = start[:-4].decode("utf-8", "replace").count("\ufffd")
    if b"\0" in start or wrong * 2 < len(start) - len(start.decode("ascii", "ignore")) or not wrong:
        return "utf-8"
    return legacy_encoding(start) or "utf-8"


def _end_of_documents(text: str) -> str | None:
    """The mark that stands twice or more at an end of a line, as a text about such marks rarely has it."""
    lines = Counter(mark for line in text.splitlines() for mark in ENDS_OF_DOCUMENTS if line.endswith(mark))
    return next((mark for mark, count in lines.most_common(1) if count > 1), None)


def _of_rows(rows: Sequence[Row], encoding: str, separator: str | None) -> tuple[Shape | None, list[str]]:
    """The shape of rows, and their texts. Preferences and conversations go before a column of text."""
    if talks := talks_in(rows):
        return Shape(False, talks[0], None, encoding, separator), talks[1]
    column = column_of_text(rows)
    if column is None:
        return None, []
    texts = [value for row in rows if isinstance(value := row.get(column), str) and value.strip()]
    return Shape(False, "text", column, encoding, separator), texts


def _may_be_settings(shape: Shape) -> bool:
    """Whether the only row of a file has no column that says that it is a text or a conversation."""
    return shape.text_column is not None and shape.text_column.lower() not in TEXT_COLUMNS


def _without_text(beginning: _Beginning, table: Path | None) -> str:
    """Why a file has no text. `table`: a Parquet file, whose schema names columns that were not read."""
    if beginning.rows:
        return _of_one_object(beginning.rows) or without_text(beginning.rows, table)
    return beginning.rejects[0].detail if beginning.rejects else "holds no text"


def _of_one_object(rows: Sequence[Row]) -> str:
    """What to do with a file of one object that holds a list of rows; empty if it is none."""
    if len(rows) != 1:
        return ""
    if why := exported_chat(json.dumps(rows[0], default=str).encode()):
        return why
    place = list_of_rows(rows[0])
    return f"its rows are a list within one object: write them alone (jq -c '{place}')" if place else ""
