"""Data sets with one line of a document per row, such as wikitext."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, SourceDocument, location
from pipeline.sources.formats.rows import Row, RowReader
from pipeline.sources.source import RefusedError


@dataclass(frozen=True)
class JoinedRows(RowReader):
    """A row that fully matches `start` begins a document, whose id is the location of that row. A document
    that continues in the next file becomes two.
    """

    start: re.Pattern[str]
    _lines: list[str] = field(default_factory=list)
    _where: dict[str, int] = field(default_factory=lambda: {"first": 1, "characters": 0})

    def add(self, number: int, row: Row) -> Iterator[pa.RecordBatch]:
        try:
            line = self._text(row)
        except RefusedError as error:
            self.reject(number, error.reason, str(error))
            return
        if self.start.fullmatch(line.strip()) or self._where["characters"] > MAX_DOCUMENT_BYTES:
            yield from self.rest()
        if not self._lines:
            self._where.update(first=number, characters=0)
        self._lines.append(line if line.endswith("\n") else f"{line}\n")
        self._where["characters"] += len(line)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Takes the collected document unless it is blank. Yields a batch once it is full."""
        text = "".join(self._lines).strip()
        self._lines.clear()
        if text and not self.batches.done:
            first = self._where["first"]
            self.batches.add(self.file, SourceDocument(location(self.file, first), text, first, self.file))
            yield from self.batches.full()
