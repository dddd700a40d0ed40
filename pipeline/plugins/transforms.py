"""Runs the user's transforms: each gives the documents new texts."""

import inspect
from collections.abc import Sequence

import pyarrow as pa

from pipeline.plugins import Document
from pipeline.plugins.calling import Failure, UserCode, column, documents
from pipeline.plugins.loading import PluginError, check_arguments
from pipeline.plugins.settings import TransformParams
from pipeline.store.errors import kind_of

TEXT = pa.field("the new text", pa.large_string(), nullable=False)


class Transform(UserCode):
    """A transform of a recipe."""

    def check(self) -> None:
        """Raises PluginError when the code cannot be loaded, or does not take these parameters."""
        if inspect.isclass(self.code):
            raise PluginError(f"{self.entry.python} is a class: a transform is a function")
        check_arguments(self.code, self.entry.params, 1, self.entry.python)

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Failure]]:
        """The documents with new texts, without those that the code failed on."""
        pieces: list[pa.RecordBatch] = []
        failures: list[Failure] = []
        for rows, result in self.outcomes(self._texts, batch, self.mark.one_document):
            if isinstance(result, Failure):
                failures.append(result)
            else:
                index = rows.schema.get_field_index("text")
                pieces.append(rows.set_column(index, rows.schema.field(index), result))
        return pa.concat_batches(pieces) if pieces else batch.slice(0, 0), failures

    def _texts(self, batch: pa.RecordBatch) -> pa.Array:
        if self.mark.one_document:
            texts = [self._text(document) for document in documents(batch)]
        else:
            texts = self.code(batch, **self.entry.params)
        return column(texts, TEXT, batch.num_rows)

    def _text(self, document: Document) -> str:
        text = self.code(document, **self.entry.params)
        if not isinstance(text, str):
            raise TypeError(f"{self.entry.python} returned {kind_of(text)}: return the new text")
        return text


def of_corpus(entries: Sequence[TransformParams], corpus: str) -> list[Transform]:
    """The transforms that a corpus passes, in their order."""
    return [Transform(entry) for entry in entries if entry.corpora is None or corpus in entry.corpora]
