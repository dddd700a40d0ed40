"""Rows with a text column, from any format: which column is the text, which the id, and what is metadata."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pydantic import Field

from pipeline.sources.documents import Batches, Document, Reason, location, metadata_json, own_id
from pipeline.stages.params import Params

Row = dict[str, object]
DEFAULT_ID_COLUMN = "id"


class Columns(Params):
    """The columns of a row. Without `id_column`, a text or number in `id` is used where there is one, else the row's place in its file."""

    text_column: str = Field("text", min_length=1)
    id_column: str | None = Field(None, min_length=1)
    max_documents: int | None = Field(None, ge=1)


@dataclass(frozen=True)
class RowReader:
    """Turns the rows of one file into documents."""

    file: str
    columns: Columns
    batches: Batches

    def add(self, number: int, row: Row) -> Iterator[pa.RecordBatch]:
        """Takes row `number` (from 1), which is emptied; a full batch comes out."""
        text = row.pop(self.columns.text_column, _ABSENT)
        if not isinstance(text, str):
            self._no_text(number, text)
            return
        source_id, own = self._id(number, row)
        if source_id is None:
            self.batches.reject(self.file, number, Reason.BAD_ID, f"column {self.columns.id_column!r} holds neither a text nor a whole number")
            return
        url = row.pop("url", None) if isinstance(row.get("url"), str) else None
        document = Document(source_id, text, number, self.file, url if isinstance(url, str) else None, metadata_json(row), own)
        self.batches.add(self.file, document)
        yield from self.batches.full()

    def _no_text(self, number: int, text: object) -> None:
        column = self.columns.text_column
        if text is _ABSENT:
            self.batches.reject(self.file, number, Reason.NO_TEXT, f"no column {column!r}")
        elif text is None:
            self.batches.reject(self.file, number, Reason.NULL_TEXT, f"column {column!r} is null")
        else:
            self.batches.reject(self.file, number, Reason.TEXT_NOT_A_STRING, f"column {column!r} holds a {type(text).__name__}")

    def _id(self, number: int, row: Row) -> tuple[str | None, bool]:
        column = self.columns.id_column or DEFAULT_ID_COLUMN
        value = row.get(column)
        if isinstance(value, int | str) and not isinstance(value, bool) and value != "":
            del row[column]
            return own_id(str(value)), True
        return (None, False) if self.columns.id_column else (location(self.file, number), False)


_ABSENT = object()
