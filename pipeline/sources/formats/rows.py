"""Rows of any format as documents: which columns hold the text, the id and the metadata."""

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, Batches, Document, Header
from pipeline.sources.ids import location, own_id
from pipeline.sources.metadata import metadata_json
from pipeline.sources.rejects import Reason
from pipeline.store.params import Params

Row = dict[str, object]
DEFAULT_ID_COLUMN = "id"
START_BYTES = 32


class Columns(Params):
    """Which columns of a row make the document's text, id, URL and metadata."""

    text_column: str = Field("text", min_length=1, description="Column that holds the text.")
    text_template: str | None = Field(
        None,
        description="Makes the text from several columns, for example `{title}\\n\\n{text}`, in place of "
        "`text_column`. A row in which one of these columns is missing or null is set aside.",
    )
    id_column: str | None = Field(
        None,
        min_length=1,
        description="Column that holds the id; a row whose id is neither text nor a whole number is set "
        "aside. When not set, `id` is used where it holds a usable value, else the row's place in its file.",
    )
    url_column: str = Field(
        "url", min_length=1, description="Column that holds the document's URL. A row may lack it."
    )
    metadata_columns: tuple[str, ...] | None = Field(
        None,
        description="Columns to keep as the document's metadata, up to about 4,096 bytes of JSON. When not "
        "set, all columns that are not text, id or URL.",
    )
    max_documents: int | None = Field(
        None,
        ge=1,
        description="Documents to read at most: the first ones, with files in the order of their names. "
        "When not set, all.",
    )

    @field_validator("text_template")
    @classmethod
    def _names_columns(cls, template: str | None) -> str | None:
        if template is not None and not fields_of(template):
            raise ValueError(
                'names no column; write for example "{title}\\n\\n{text}", and {{ }} for braces in the text'
            )
        return template

    @model_validator(mode="after")
    def _one_text(self) -> "Columns":
        if self.text_template is not None and "text_column" in self.model_fields_set:
            raise ValueError("has both text_column and text_template; leave one out")
        return self

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that a row must have."""
        return (self.text_column,) if self.text_template is None else fields_of(self.text_template)

    def wants(self, column: str) -> bool:
        """Whether a column other than those of the text is read."""
        wanted = self.metadata_columns
        return wanted is None or column in (*wanted, self.id_column or DEFAULT_ID_COLUMN, self.url_column)


def fields_of(template: str) -> tuple[str, ...]:
    """The columns that a template names, each once. Raises ValueError for anything but plain names in
    braces.
    """
    fields = []
    for _, name, style, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        if not name or style or conversion or any(mark in name for mark in ".["):
            raise ValueError(f"{{{name}}} is not a plain column name in braces")
        fields.append(name)
    return tuple(dict.fromkeys(fields))


@dataclass(frozen=True)
class RowReader:
    """Turns the rows of one file into documents. `bytes`: of the file on disk, 0 if they are not known."""

    file: str
    columns: Columns
    batches: Batches
    bytes: int = field(default=0, kw_only=True)

    def add(self, number: int, row: Row) -> Iterator[pa.RecordBatch]:
        """Takes row `number` (from 1) and empties it. Yields a batch once it is full."""
        text = self._text(number, row)
        if text is None:
            return
        named = self.name(number, row)
        if named is None:
            self.batches.reject(
                self.file,
                number,
                Reason.BAD_ID,
                f"column {self.columns.id_column!r} holds neither a text nor a whole number",
            )
            return
        self.batches.add(
            self.file,
            Document(named.source_id, text, number, self.file, named.url, named.metadata, named.own_id),
        )
        yield from self.batches.full()

    @property
    def takes_batches(self) -> bool:
        """Whether `add_batch` may be called: each row is a document with its text in one column."""
        return self.columns.text_template is None

    def add_batch(
        self, numbers: Sequence[int], texts: pa.LargeBinaryArray | pa.LargeStringArray, rows: Sequence[Row]
    ) -> bool:
        """Takes all of these rows, whose texts were removed from them, without copying the texts. Takes none
        and returns False if one would be rejected. Empties the rows.
        """
        good = _good_texts(texts)
        if good is None:
            return False
        named = [self.name(number, row) for number, row in zip(numbers, rows, strict=True)]
        return None not in named and self.batches.add_batch(self.file, good, cast(list[Header], named))

    def name(self, number: int, row: Row) -> Header | None:
        """The header of the document in row `number`, which no longer holds its text. Empties the row. None
        if `id_column` is set and holds no id.
        """
        source_id, own = self._id(number, row)
        if source_id is None:
            return None
        url = row.get(self.columns.url_column)
        if isinstance(url, str):
            del row[self.columns.url_column]
        known = (
            row
            if self.columns.metadata_columns is None
            else {name: row[name] for name in self.columns.metadata_columns if name in row}
        )
        return Header(source_id, own, url if isinstance(url, str) else None, metadata_json(known))

    def _text(self, number: int, row: Row) -> str | None:
        template = self.columns.text_template
        values = [row.pop(name, _ABSENT) for name in self._text_columns]
        for name, value in zip(self._text_columns, values, strict=True):
            if not isinstance(value, str) and (template is None or not _is_number(value)):
                self._no_text(number, name, value)
                return None
        return (
            str(values[0])
            if template is None
            else template.format(**dict(zip(self._text_columns, values, strict=True)))
        )

    @cached_property
    def _text_columns(self) -> tuple[str, ...]:
        return self.columns.text_columns

    def _no_text(self, number: int, column: str, text: object) -> None:
        if text is _ABSENT:
            self.batches.reject(self.file, number, Reason.NO_TEXT, f"no column {column!r}")
        elif text is None:
            self.batches.reject(self.file, number, Reason.NULL_TEXT, f"column {column!r} is null")
        else:
            self.batches.reject(
                self.file,
                number,
                Reason.TEXT_NOT_A_STRING,
                f"column {column!r} holds a {type(text).__name__}",
            )

    def _id(self, number: int, row: Row) -> tuple[str | None, bool]:
        column = self.columns.id_column or DEFAULT_ID_COLUMN
        value = row.get(column)
        if isinstance(value, int | str) and not isinstance(value, bool) and value != "":
            del row[column]
            return own_id(str(value)), True
        return (None, False) if self.columns.id_column else (location(self.file, number), False)


def _good_texts(values: pa.LargeBinaryArray | pa.LargeStringArray) -> pa.LargeStringArray | None:
    """The texts as strings, or None if one is null, not UTF-8, empty, too long, or only white space."""
    sizes = pc.min_max(pc.binary_length(values)).as_py()
    if values.null_count or not sizes["min"] or sizes["max"] > MAX_DOCUMENT_BYTES:
        return None
    try:
        texts = values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None
    starts = pc.binary_slice(values.view(pa.large_binary()), 0, START_BYTES).to_pylist()
    # a text whose first bytes show a visible character is not blank; only the others are read in full
    blank = (
        row
        for row, start in enumerate(starts)
        if not b"!" <= start[:1] <= b"~" and not start.decode(errors="ignore").strip()
    )
    return None if any(texts[row].as_py().isspace() for row in blank) else texts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_ABSENT = object()
