"""Whether two rows of some files have one id."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.formats.rows import DEFAULT_ID_COLUMN, Row, RowReader
from pipeline.sources.source import SourceError, Unit
from pipeline.sources.source_file import LocalFile, size_of
from pipeline.start.folder.sample import Shape

MOST_SECONDS = 2.0  # for all corpora of a folder
ROWS = 1_000  # after which the time is looked at, which costs more than reading a row


class _Ids(FilesConfig):
    """Reads the ids of rows and nothing else, where a format can."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def companions(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class _Seen(RowReader):
    """Ends the reading when an id repeats, or at the time `until`. `seen` are the hashes of ids, and
    `found` gets the id that repeats.
    """

    seen: set[int] = field(kw_only=True)
    found: list[str] = field(kw_only=True)
    until: float = field(kw_only=True)

    def add(self, number: int, row: Row) -> Iterator[pa.RecordBatch]:
        if (value := row.get(DEFAULT_ID_COLUMN)) not in ("", None):
            before = len(self.seen)
            self.seen.add(hash(str(value)))
            if len(self.seen) == before:
                self.found.append(str(value))
        is_due = not number % ROWS or not len(self.seen) % ROWS  # also in many files of few rows
        if self.found or (is_due and time.monotonic() > self.until):
            self.batches.accepted = 1
        yield from ()


def repeat(files: Mapping[str, LocalFile], shape: Shape, seconds: float) -> bool:
    """Whether two rows of the files have one id, as far as so many seconds show. Ids are often numbers that
    begin again in each file, or in each part of a file that was joined from several. Small files come first.
    """
    config = _Ids(
        paths=("*",), encoding=shape.encoding, separator=shape.separator, max_documents=1, metadata_columns=()
    )
    found: list[str] = []
    until = time.monotonic() + seconds
    reader = partial(_Seen, seen=set(), found=found, until=until)
    by_size = tuple(sorted(files.items(), key=lambda file: size_of(file[1])))
    with suppress(SourceError, OSError):  # what cannot be read is told elsewhere
        for _ in FilesSource("ids", config, row_reader=reader).read(Unit("ids", "", 0, files=by_size), []):
            pass
    return bool(found)
