"""Runs the user's transforms: each gives the documents new texts."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.plugins import Document, marked
from pipeline.plugins.calling import Failure, WrongLengthError, documents, failure, tried
from pipeline.plugins.loading import RAISED, TRANSFORMS, Code, PluginError, check_arguments, load
from pipeline.plugins.settings import TransformParams

TEXT = pa.large_string()


@dataclass(frozen=True)
class Transform:
    """A transform of a recipe."""

    entry: TransformParams

    @cached_property
    def code(self) -> Code:
        return load(TRANSFORMS, self.entry.python)

    def __reduce__(self) -> tuple[Any, ...]:
        return Transform, (self.entry,)  # a worker process loads the code itself

    def check(self) -> None:
        """Raises PluginError when the code cannot be loaded, or does not take these parameters."""
        if inspect.isclass(self.code):
            raise PluginError(f"{self.entry.python} is a class: a transform is a function")
        check_arguments(self.code, self.entry.params, 1, self.entry.python)

    @property
    def identity(self) -> dict[str, Any]:
        """What the new texts depend on, in addition to the old ones."""
        return self.entry.model_dump(include={"name", "python", "version", "params"})

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Failure]]:
        """The documents with new texts, without those that the code failed on."""
        pieces: list[pa.RecordBatch] = []
        failures: list[Failure] = []
        if marked(self.code).one_document:
            texts: list[str | None] = []
            for number, document in enumerate(documents(batch)):
                try:
                    texts.append(self._text(document))
                except RAISED as error:
                    failures.append(failure(batch.slice(number, 1), self.entry.name, self.code, error))
                    texts.append(None)
            column = pa.array(texts, TEXT)
            return _with_text(batch, column).filter(pc.is_valid(column)), failures
        for rows, result in tried(self._texts, batch):
            if isinstance(result, BaseException):
                failures.append(failure(rows, self.entry.name, self.code, result))
            else:
                pieces.append(_with_text(rows, result))
        return pa.concat_batches(pieces) if pieces else batch.slice(0, 0), failures

    def _text(self, document: Document) -> str:
        text = self.code(document, **self.entry.params)
        if not isinstance(text, str):
            raise TypeError(f"{self.entry.python} returned a {type(text).__name__}: return the new text")
        text.encode()  # raises for a lone surrogate, which no file can hold
        return text

    def _texts(self, batch: pa.RecordBatch) -> pa.Array:
        result = self.code(batch, **self.entry.params)
        if isinstance(result, str | bytes):
            raise TypeError(f"{self.entry.python} returned one text: return a column of texts")
        try:
            result = result.combine_chunks() if isinstance(result, pa.ChunkedArray) else pa.array(result)
            column = result if result.type == TEXT else result.cast(TEXT)
        except (pa.ArrowException, TypeError) as error:
            raise TypeError(f"{self.entry.python} did not return a column of texts: {error}") from None
        if len(column) != batch.num_rows:
            raise WrongLengthError(
                f"{self.entry.python} returned {len(column)} texts for {batch.num_rows} documents"
            )
        if column.null_count:
            raise TypeError(f"{self.entry.python} returned None: a transform keeps every document")
        return column


def _with_text(batch: pa.RecordBatch, text: pa.Array) -> pa.RecordBatch:
    index = batch.schema.get_field_index("text")
    field = batch.schema.field(index).with_nullable(text.null_count > 0)
    return batch.set_column(index, field, text)


def of_corpus(entries: Sequence[TransformParams], corpus: str) -> list[Transform]:
    """The transforms that a corpus passes, in their order."""
    return [Transform(entry) for entry in entries if entry.corpora is None or corpus in entry.corpora]
