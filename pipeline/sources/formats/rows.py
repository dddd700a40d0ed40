"""Rows of any format as documents: which columns hold the text, the id and the metadata."""

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from pipeline.sources.documents import Batches, SourceDocument, location, metadata_json, own_id
from pipeline.sources.formats import conversations
from pipeline.sources.formats.conversations import FORMS, Format, columns_of, conversation, forms_of
from pipeline.sources.formats.unlearnable import COMPANIONS, FORM, MEDIA, TOOLS, UNREAD, form_error
from pipeline.sources.source import MaxDocuments, Reason, RefusedError
from pipeline.store.errors import kind_of
from pipeline.store.params import Params

Row = dict[str, object]
MOST_UNREAD, MOST_OF_A_KEY = 10, 40  # keys of messages that are named in metadata, and characters of each
MOST_NAMED = 5  # columns, where the one of the text is missing
_PLAIN_NAME = re.compile(r"[A-Za-z][\w -]{0,39}")
DEFAULT_ID_COLUMN = "id"
KEPT_IDS = "kept-ids-1"


class Columns(Params):
    """Which columns of a row make the document's text, id, URL and metadata."""

    format: Format = "text"
    """What a row is: a text, a conversation (`chat`), or two to choose from (`preferences`), in the columns
    that docs/chat.md names.
    """
    text_column: str = Field("text", min_length=1)
    """Column that holds the text."""
    text_template: str | None = None
    r"""Makes the text from several columns, for example `{title}\n\n{text}`, in place of `text_column`. A row
    in which one of these columns is missing or null is set aside.
    """
    id_column: str | None = None
    """Column that holds the id; a row whose id is neither text nor a whole number is set aside. Its value is
    also kept as metadata, so that `inspect` and `lineage` call a document by its `title` or `name`. When not
    set, `id` is used if it holds a usable value, else the row's place in its file. With `""`, the place is
    always used: set this for files in each of which the ids start again from 0.
    """
    url_column: str = Field("url", min_length=1)
    """Column that holds the document's URL. A row may lack it."""
    metadata_columns: tuple[str, ...] | None = None
    """Columns to keep as the document's metadata, up to about 4,096 bytes of JSON. When not set, all columns
    that are not text, id or URL.
    """
    max_documents: MaxDocuments = None

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
        # A value that is the default has no effect either, and a lineage has all of them.
        usual = {name: field.default for name, field in type(self).model_fields.items()}
        of_text = ("text_column", "text_template", "document_start")
        set_otherwise = [name for name in of_text if getattr(self, name, None) != usual.get(name)]
        if {"text_column", "text_template"} <= set(set_otherwise):
            raise ValueError("has both text_column and text_template; leave one out")
        for name in set_otherwise if self.format != "text" else ():
            raise ValueError(f"{name} has no effect with format: {self.format}; leave it out")
        return self

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that a row must have; of conversations, all that it may have."""
        if self.format != "text":
            return columns_of(self.format)
        return (self.text_column,) if self.text_template is None else fields_of(self.text_template)

    @property
    def companions(self) -> tuple[str, ...]:
        """Columns that decide about a row whose text is in others, whatever is kept as metadata."""
        if self.format == "text":
            return ()
        return (*COMPANIONS, FORM) if self.wants(FORM) else COMPANIONS

    @property
    def version(self) -> str:
        """The version of the code that makes text and metadata of a row, as a source adds it to its own
        version. Empty for the format `text`, whose text is one column, unless an id is metadata, too.
        """
        of_text = "" if self.format == "text" else f" {conversations.VERSION}"
        return of_text if self.kept_id is None else f"{of_text} {KEPT_IDS}"

    @property
    def kept_id(self) -> str | None:
        """The column of the id, where its value is kept as metadata, too. The usual column is not, since its
        values are numbers as a rule, nor is a column that is the text.
        """
        columns = () if self.text_template else self.text_columns
        return None if self.id_column in ("", DEFAULT_ID_COLUMN, *columns) else self.id_column

    def wants(self, column: str) -> bool:
        """Whether a column other than those of the text is read."""
        wanted = self.metadata_columns
        return wanted is None or column in (*wanted, self.id_column or DEFAULT_ID_COLUMN, self.url_column)


def fields_of(template: str) -> tuple[str, ...]:
    """The columns that a template names, each once. Raises ValueError unless they are plain names."""
    fields = []
    for _, name, style, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        if not name or style or conversion or any(mark in name for mark in ".["):
            raise ValueError(f"{{{name}}} is not a plain column name in braces")
        fields.append(name)
    return tuple(dict.fromkeys(fields))


def no_text_column(names: Sequence[str], columns: Columns) -> str | None:
    """Why columns with these names hold no text; None if they do."""
    forms = FORMS[columns.format]
    if forms and not any(set(form) <= set(names) for form in forms):
        return f"no column {forms_of(columns.format)}; there are {', '.join(map(repr, names))}"
    for name in columns.text_columns:
        if name not in names and not forms:
            # In quotes, which show a space at the end of a name.
            there = ", ".join(map(repr, names))
            return f"no column {name!r}: name the one of the text in `text_column`; there are {there}"
        if (found := names.count(name)) > 1:
            return f"{found} columns have the name {name!r}: rename all but one"
    return None


@dataclass(frozen=True)
class RowReader:
    """Turns the rows of one file into documents. The file has `bytes` on disk, 0 if that is not known."""

    file: str
    columns: Columns
    batches: Batches
    bytes: int = field(default=0, kw_only=True)

    def reject(
        self, number: int | None, reason: Reason, detail: str, lost_bytes: int = 0, rows: int = 1
    ) -> None:
        """Sets a row aside, or the file if `number` is None."""
        self.batches.reject(self.file, number, reason, detail, lost_bytes, rows)

    def add(self, number: int, row: Row) -> Iterator[pa.RecordBatch]:
        """Takes row `number` (from 1) and empties it. Yields a batch once it is full."""
        before = {self._kept_id: row[self._kept_id]} if self._kept_id in row else {}
        try:
            text = self._text(row)
            row |= before  # a template takes its columns out
            source_id = self._id(number, row)
            url = row.get(self.columns.url_column)
            if isinstance(url, str):
                del row[self.columns.url_column]
            else:
                url = None
            wanted = self.columns.metadata_columns
            known = row if wanted is None else {name: row[name] for name in (*wanted, UNREAD) if name in row}
            if self.columns.format != "text":
                _check_form(known.get(FORM))
        except RefusedError as error:
            self.reject(number, error.reason, str(error))
            return
        document = SourceDocument(source_id, text, number, self.file, url, metadata_json(known))
        self.batches.add(self.file, document)
        yield from self.batches.full()

    def _text(self, row: Row) -> str:
        """Takes the text out of a row. Raises RefusedError."""
        if self.columns.format != "text":
            return self._conversation(row)
        template = self.columns.text_template
        usable = (str,) if template is None else (str, int, float)
        values = {name: row.pop(name, _ABSENT) for name in self._text_columns}
        for name, value in values.items():
            if not isinstance(value, usable) or isinstance(value, bool):
                there = [name for name, one in values.items() if one is not _ABSENT]
                raise self._no_text(name, value, [*there, *row])
        return str(values[self.columns.text_column]) if template is None else template.format(**values)

    def _conversation(self, row: Row) -> str:
        unread: set[str] = set()
        text = conversation(self.columns.format, row, unread)
        for name in (*MEDIA, *TOOLS):
            row.pop(name, None)  # empty, and of another type in each format
        if unread:
            known = dict(row)
            row.clear()
            # first, so that it is not what metadata has no room for
            row |= {UNREAD: [key[:MOST_OF_A_KEY] for key in sorted(unread)[:MOST_UNREAD]], **known}
        return text

    @cached_property
    def _kept_id(self) -> str | None:
        return self.columns.kept_id

    @cached_property
    def _text_columns(self) -> tuple[str, ...]:
        return self.columns.text_columns

    def _no_text(self, column: str, text: object, there: Sequence[str]) -> RefusedError:
        if text is _ABSENT:
            # Keys that look like data may be personal, such as addresses.
            plain = [repr(name) for name in there if _PLAIN_NAME.fullmatch(name)][:MOST_NAMED]
            named = f"; there are {', '.join(plain)}" if plain else ""
            setting = "`text_template`" if self.columns.text_template else "`text_column`"
            return RefusedError(Reason.NO_TEXT, f"no column {column!r}, which {setting} names{named}")
        if text is None:
            return RefusedError(Reason.NULL_TEXT, f"column {column!r} is null")
        return RefusedError(Reason.TEXT_NOT_A_STRING, f"column {column!r} holds {kind_of(text)}")

    def _id(self, number: int, row: Row) -> str:
        column = self.columns.id_column
        if column is None:
            column = DEFAULT_ID_COLUMN
        value = row.get(column) if column else None
        if isinstance(value, int | str) and not isinstance(value, bool) and value != "":
            if column != self._kept_id:
                del row[column]
            return own_id(str(value))
        if self.columns.id_column:
            raise RefusedError(Reason.BAD_ID, f"column {column!r} holds neither a text nor a whole number")
        return location(self.file, number)


def _check_form(form: object) -> None:
    """Raises RefusedError for a form with which no answer can be compared."""
    if form is None:
        return
    why = form_error(form) if isinstance(form, str) else f"holds {kind_of(form)}, no text"
    if why is not None:
        remedy = "correct it, or leave it out of `metadata_columns` if it means something else"
        raise RefusedError(Reason.BAD_FORM, f"column {FORM!r} {why}; {remedy}")


_ABSENT = object()
