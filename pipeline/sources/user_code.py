"""Documents that the user's own class or function yields."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from pipeline import plugins
from pipeline.plugins.calling import MESSAGE_CHARACTERS, ordinary
from pipeline.plugins.loading import (
    RAISED,
    Code,
    PluginError,
    check_arguments,
    ended,
    in_one_process,
    load,
    message,
    place,
)
from pipeline.plugins.settings import Arguments
from pipeline.sources.documents import Batches, SourceDocument, metadata_json, own_id
from pipeline.sources.source import Reason, Rejects, SourceError, Unit
from pipeline.store.errors import kind_of, last_words
from pipeline.store.params import Params

UNIT = "documents"


class PythonConfig(Params):
    """A class with a method `documents`, or a function, that yields every `Document` (of `pipeline.plugins`).

    A class may have a method `fingerprint`, whose result changes when its documents may have.
    """

    kind: Literal["python"] = "python"
    """Selects this source."""
    object: str = Field(min_length=1)
    """`package.module:name` of a class or function."""
    version: str = Field(min_length=1)
    """Part of the fingerprint: a new version reads every document again."""
    params: Arguments = Field({})

    def check(self) -> None:
        """Raises PluginError when the code cannot be loaded, or does not take these parameters."""
        code = load(self.object)
        if inspect.isclass(code) and not callable(getattr(code, "documents", None)):
            raise PluginError(f"{self.object} has no method 'documents', which yields what the source holds")
        check_arguments(code, self.params, 0, self.object)


@dataclass(frozen=True)
class PythonSource:
    """One unit, fingerprinted by what the class says, or read once for each version when it says nothing."""

    corpus: str
    config: PythonConfig
    version: ClassVar[str] = "python-1"

    def units(self) -> list[Unit]:
        code = load(self.config.object)
        fingerprint = self.config.version
        if callable(getattr(code, "fingerprint", None)):
            try:
                with in_one_process(), last_words(ended(f"asked {self.config.object} for its fingerprint")):
                    fingerprint = code(**self.config.params).fingerprint()
            except RAISED as error:
                raise self._error(f"cannot tell its fingerprint: {_masked(error, code)}") from None
            if not isinstance(fingerprint, str):
                raise self._error(f"gave {kind_of(fingerprint)} as its fingerprint: give a text")
        return [Unit(UNIT, fingerprint, 0)]

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """Raises SourceError when the user's code raises: what it would have yielded next is not known."""
        batches, code = Batches(self.corpus, rejects), self.config.object
        for row, document in enumerate(self._documents(), start=1):
            if not isinstance(document.id, str) or not document.id:
                batches.reject(code, row, Reason.BAD_ID, f"the id is {document.id!r}: give a text")
            elif not isinstance(document.text, str):
                batches.reject(code, row, Reason.TEXT_NOT_A_STRING, f"the text is {kind_of(document.text)}")
            else:
                name, metadata = own_id(document.id), metadata_json(dict(document.metadata or {}))
                batches.add(code, SourceDocument(name, document.text, row, code, document.url, metadata))
                yield from batches.full()
        yield from batches.rest()

    def _documents(self) -> Iterator[plugins.Document]:
        code = load(self.config.object)
        after = "before its first document"
        try:
            for document in self._yielded(code):
                if fault := _fault(document):
                    raise self._error(f"failed {after}: {fault}")
                yield document
                after = f"after document {document.id!r}"
        except SourceError:
            raise
        except RAISED as error:
            raise self._error(f"failed {after}: {_masked(error, code)}") from None

    def _yielded(self, code: Code) -> Iterator[plugins.Document]:
        """What the user's code yields, though it may be no Document."""
        with in_one_process():
            made = code(**self.config.params)
            documents = iter(made.documents() if inspect.isclass(code) else made)
        while True:
            with in_one_process():
                try:
                    document = next(documents)
                except StopIteration:
                    return
            yield document

    def _error(self, what: str) -> SourceError:
        return SourceError(f"corpus {self.corpus!r}: {self.config.object} {what}")


def _masked(error: BaseException, code: Code) -> str:
    """An exception in one line, with no word that may be of a document."""
    said = ordinary(message(error)[:MESSAGE_CHARACTERS])
    return f"{type(error).__name__}{said and ': '}{said}{place(error, code.__module__)}"


def _fault(document: object) -> str | None:
    """Why this cannot be stored: no Document, a URL or metadata of another type, or a URL that no file can
    hold.
    """
    if not isinstance(document, plugins.Document):
        return f"a source yields pipeline.plugins.Document, not {type(document).__name__}"
    if not isinstance(document.url, str | None):
        return f"the url of document {document.id!r} is of type {type(document.url).__name__}, not a text"
    if not isinstance(document.metadata, Mapping | None):
        kind = type(document.metadata).__name__
        return f"the metadata of document {document.id!r} is of type {kind}, not a dictionary"
    try:
        (document.url or "").encode()
    except UnicodeEncodeError:
        return f"the url of document {document.id!r} holds half a surrogate pair"
    return None
