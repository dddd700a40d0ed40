"""The user's code, called on a batch: what it returned for each document, and the documents it failed on."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.types as pt

from pipeline.plugins import MARK, Document, Marked
from pipeline.plugins.loading import RAISED, Code, PluginError, in_one_process, load, message, place
from pipeline.plugins.settings import Entry

FAILURES_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("id", "name", "error", "message", "place")]
)
MESSAGE_CHARACTERS = 200
SHARED_CHARACTERS = 16
QUOTED = re.compile(r"""(?<![^\s(\[{:=,])(['"])(.+?)\1(?![^\s)\]},.:;])""")
ORDINARY = re.compile(r"[a-z]+[,.:;]?|\W+")  # words of a message that say nothing about a document

Result = TypeVar("Result")


class WrongLengthError(TypeError):
    """A batch got more or fewer values than it has documents, so nobody knows which belong to which."""


class Failure(NamedTuple):
    """Why a document was set aside: a row of FAILURES_SCHEMA."""

    id: str
    name: str
    error: str
    message: str
    place: str


def failures_table(failures: list[Failure]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([failure._asdict() for failure in failures], schema=FAILURES_SCHEMA)


@dataclass(frozen=True)
class UserCode:
    """A function or class that a recipe names."""

    entry: Entry

    @cached_property
    def code(self) -> Code:
        return load(self.entry.python)

    @cached_property
    def mark(self) -> Marked:
        """Unmarked code takes batches."""
        return getattr(self.code, MARK, Marked())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.entry,)  # a worker process loads the code itself

    @property
    def identity(self) -> dict[str, Any]:
        """What the results depend on, in addition to what the code reads."""
        return self.entry.model_dump(include={"name", "python", "version", "params"})

    def outcomes(
        self, call: Callable[[pa.RecordBatch], Result], batch: pa.RecordBatch, one_by_one: bool = False
    ) -> Iterator[tuple[pa.RecordBatch, Result | Failure]]:
        """Calls `call(batch)`. Where it raises, it is called with the halves of the batch, and with their
        halves, down to the documents that it fails on. With `one_by_one` it is called with the documents at
        once. The outcomes are in the order of the batch. After a WrongLengthError every document of the batch
        counts as failed.

        With f failures in n documents, each document is passed about f * log2(n) times at most, and with
        `one_by_one` twice.
        """
        try:
            with in_one_process():
                result = call(batch)
        except PluginError:
            raise
        except RAISED as error:
            if batch.num_rows == 1 or isinstance(error, WrongLengthError):
                for row in range(batch.num_rows):
                    document = batch.slice(row, 1)
                    yield document, self._failure(document, error)
                return
            size = 1 if one_by_one else (batch.num_rows + 1) // 2
            for start in range(0, batch.num_rows, size):
                yield from self.outcomes(call, batch.slice(start, size))
        else:
            yield batch, result

    def _failure(self, document: pa.RecordBatch, error: BaseException) -> Failure:
        """What is recorded about the one document in this batch. No message holds the document's text."""
        text = document.column("text")[0].as_py() if "text" in document.schema.names else ""
        where = place(error, self.code.__module__).strip(" ()")
        id_ = document.column("id")[0].as_py()
        said = str(error) if isinstance(error, WrongLengthError) else _masked(error, text)
        return Failure(id_, self.entry.name, type(error).__name__, said, where)


def ordinary(said: str, text: str | None = None) -> str:
    """A message with `...` in place of what it quotes of a document: quoted pieces, names and numbers. Where
    the `text` of the document is not known, all such pieces are hidden, wherever they are from.
    """
    said = QUOTED.sub(lambda quoted: "'...'" if text is None or quoted[2] in text else quoted[0], said)
    return " ".join(
        "..." if (text is None or word in text) and not ORDINARY.fullmatch(word) else word
        for word in said.split()
    )


def _masked(error: BaseException, text: str) -> str:
    """The error's message with `...` for each stretch of at least SHARED_CHARACTERS from the document."""
    text = " ".join(text.split())
    said = ordinary(message(error)[:MESSAGE_CHARACTERS], text)
    shown, start = "", 0
    while start < len(said):
        end = start + SHARED_CHARACTERS
        if end <= len(said) and said[start:end] in text:
            while end < len(said) and said[start : end + 1] in text:
                end += 1
            shown, start = f"{shown}...", end
        else:
            shown, start = shown + said[start], start + 1
    return shown


def documents(batch: pa.RecordBatch) -> Iterator[Document]:
    """The rows of a batch, one at a time."""
    columns = [batch.column(name) for name in ("id", "text", "url", "metadata")]
    for id_, text, url, metadata in zip(*columns, strict=True):
        values = metadata.as_py()
        with in_one_process():  # each: a process that was forked for one would fork with the next
            yield Document(id_.as_py(), text.as_py(), url.as_py(), json.loads(values) if values else {})


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds strings; numbers would be cast to text without a word."""
    value = kind.value_type if pt.is_dictionary(kind) else kind
    return bool(pt.is_string(value) or pt.is_large_string(value) or pt.is_string_view(value))


def column(values: Any, field: pa.Field, rows: int) -> pa.Array:
    """What the user's code gave, as a column. Raises TypeError if length, type or values do not fit."""
    if isinstance(values, str | bytes):
        raise TypeError(f"{field.name} is one text, not a column of {field.type}")
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        array = pa.array(values)
        if is_text(field.type) and not (is_text(array.type) or pt.is_null(array.type)):
            raise TypeError(f"these are of type {array.type}, not text")
        array = array if array.type == field.type else array.cast(field.type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TypeError(f"{field.name} is not a column of {field.type}: {error}") from None
    if len(array) != rows:
        raise WrongLengthError(f"{field.name} has {len(array)} values for {rows} documents")
    if array.null_count and not field.nullable:
        raise TypeError(f"{field.name} is None for a document")
    return array
