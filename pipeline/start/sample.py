"""A sample of one file: how it is to be read, and its first texts, by the readers of the sources."""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.sources.files import SEPARATORS, FilesConfig, FilesSource
from pipeline.sources.formats.compression import BrokenCompressionError, format_of
from pipeline.sources.formats.conversations import FORMS, Format, columns_of
from pipeline.sources.formats.first_bytes import wide_encoding
from pipeline.sources.formats.rows import Row, RowReader
from pipeline.sources.formats.streams import blocks
from pipeline.sources.source import Rejected, Unit
from pipeline.sources.source_file import LocalFile, size_of
from pipeline.stages.language import detect

HEAD_BYTES, PACKED_HEAD_BYTES = 256 << 10, 1 << 20  # of a file that is not, and that is compressed
PIECE_BYTES = 16 << 10  # of plain text that is judged as one document
MOST_DOCUMENTS = 64  # of a file
PACKED_SHARE = 3.0  # bytes that a compressed byte usually becomes
_LETTER = re.compile(r"\w")
TEXT_COLUMNS = ("text", "body", "content")
# Tried in this order on text that is not Unicode. The first is the usual one of Western Europe.
LEGACY_ENCODINGS = ("cp1252", "cp1251", "gb18030", "big5", "shift_jis", "euc_kr")


@dataclass(frozen=True)
class Shape:
    """How files are read: files of one shape fit into one corpus. `text_column` is None for plain text and
    for conversations, `separator` for all but CSV with an unusual one.
    """

    plain: bool
    format: Format = "text"
    text_column: str | None = None
    encoding: str = "utf-8"
    separator: str | None = None


@dataclass(frozen=True)
class FileSample:
    """The first `texts` of a file, or the `problem` for which it has none. `text_share`: bytes of text for
    each byte on disk. `columns`: the names in its rows.
    """

    shape: Shape | None
    texts: tuple[str, ...] = ()
    text_share: float = 0.0
    columns: frozenset[str] = frozenset()
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
        return tuple({*columns_of("chat"), *columns_of("preferences")})


@dataclass(frozen=True)
class _RowCollector(RowReader):
    """Keeps the rows of a file as they are."""

    rows: list[Row] = field(kw_only=True)

    def add(self, number: int, row: Row) -> Iterator[pa.RecordBatch]:
        self.rows.append(row)
        self.batches.accepted += 1
        yield from ()


def sampled(name: str, file: LocalFile) -> FileSample:
    """The sample of a file. A file that cannot be read has the reason as its `problem`."""
    plain, compression = format_of(name)
    most = PACKED_HEAD_BYTES if compression else HEAD_BYTES
    head = file if plain == ".parquet" else Head(file.path, most)
    try:
        encoding = "utf-8" if plain == ".parquet" else _encoding(next(_start(head, compression), b""))
    except OSError as error:
        return FileSample(None, problem=error.strerror or str(error))
    config = _AnyColumns(paths=(str(file.path),), encoding=encoding, max_documents=MOST_DOCUMENTS)
    config = config.model_copy(update={"piece_bytes": PIECE_BYTES})
    rejects: list[Rejected] = []
    shape, texts, columns = None, list[str](), frozenset[str]()
    for separator in (None, ";", "\t", "|") if plain in SEPARATORS else (None,):
        rejects.clear()
        rows: list[Row] = []
        source = FilesSource(
            "sample",
            config.model_copy(update={"separator": separator}),
            row_reader=partial(_RowCollector, rows=rows),
        )
        unit = Unit(name, "", 0, files=((name, head),))
        texts = [text for batch in source.read(unit, rejects) for text in batch.column("text").to_pylist()]
        if any(texts) and not any(map(_LETTER.search, texts)):
            return FileSample(None, problem=f"holds neither letters nor digits in its first {most:,} bytes")
        if texts:
            shape = Shape(plain=True, encoding=encoding)
        if len(rows[0] if rows else ()) > 1 or plain not in SEPARATORS:
            break
    if rows:
        columns = frozenset(name for row in rows for name in row)
        shape, texts = _of_rows(rows, columns, encoding, separator)
    if shape is None or not texts:
        return FileSample(None, columns=columns, problem=_problem(rejects, columns))
    bytes_of_text = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if rows:
        share = bytes_of_text / sum(
            len(name) + len(str(value)) + 6 for row in rows for name, value in row.items()
        )
    else:
        share = 1.0
    packed = PACKED_SHARE if compression else 1.0
    if plain == ".parquet":
        unpacked = pq.read_metadata(file.path)
        packed = sum(unpacked.row_group(n).total_byte_size for n in range(unpacked.num_row_groups))
        packed /= size_of(file)
    return FileSample(shape, tuple(texts), min(share, 1.0) * packed, columns)


def _start(file: LocalFile, compression: str) -> Iterator[bytes]:
    try:
        yield from blocks(file, compression)
    except BrokenCompressionError:
        return  # the head of a compressed file ends too early; damage is reported by the reader


def _encoding(start: bytes) -> str:
    """UTF-8 unless the bytes show that they are none: as UTF-16, or by most of what is not ASCII."""
    if wide := wide_encoding(start):
        return wide
    wrong = start[:-4].decode("utf-8", "replace").count("\ufffd")
    if b"\0" in start or wrong * 2 < len(start) - len(start.decode("ascii", "ignore")) or not wrong:
        return "utf-8"
    decoded: dict[str, str] = {}
    for encoding in LEGACY_ENCODINGS:
        try:
            decoded[encoding] = start[:-4].decode(encoding)
        except UnicodeDecodeError:
            continue
    if not decoded:
        return "utf-8"
    languages = detect(pa.RecordBatch.from_pydict({"id": [*decoded], "text": [*decoded.values()]}))
    words = dict(zip(decoded, languages.column("language_stop_words").to_pylist(), strict=True))
    return max(decoded, key=words.__getitem__)


def _of_rows(
    rows: Sequence[Row], columns: frozenset[str], encoding: str, separator: str | None
) -> tuple[Shape | None, list[str]]:
    """The shape of rows, and their texts. Preferences and conversations go before a column of text."""
    for kind in ("preferences", "chat"):
        for form in FORMS[kind]:
            held = [row for row in rows if all(row.get(name) not in (None, "", []) for name in form)]
            if len(held) * 2 > len(rows):
                said = [" ".join(_texts_in(row[name]) for name in form) for row in held]
                return Shape(False, kind, None, encoding, separator), said
    texts = {
        name: [value for row in rows if isinstance(value := row.get(name), str) and value.strip()]
        for name in sorted(columns)
    }
    longest = max(texts, key=lambda name: sum(map(len, texts[name])), default=None)
    named = (name for usual in TEXT_COLUMNS for name in texts if name.lower() == usual and texts[name])
    column = next(named, longest)
    if column is None or not texts[column]:
        return None, []
    return Shape(False, "text", column, encoding, separator), texts[column]


def _texts_in(value: Any) -> str:
    """All texts of a value, such as the roles and contents of a list of messages."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return " ".join(map(_texts_in, parts)) if parts else str(value)


def _problem(rejects: Sequence[Rejected], columns: frozenset[str]) -> str:
    if rejects:
        return rejects[0].detail
    if columns:
        return f"no column of text; there are {', '.join(map(repr, sorted(columns)))}"
    return "holds no text"
