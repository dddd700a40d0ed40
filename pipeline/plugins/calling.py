"""The user's code, called on a batch: what it returned for each document, and the documents it failed on."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from pipeline.plugins import Document
from pipeline.plugins.loading import RAISED, Code, PluginError, described, message, place
from pipeline.store.fingerprint import canonical_json

FAILURES_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("place", pa.string(), nullable=False),
    ]
)
FAILED = "failed"  # the count of documents that were set aside
MESSAGE_CHARACTERS = 200
SHARED_CHARACTERS = 16
QUOTED = re.compile(r"""(?<![^\s(\[{:=,])(['"])(.+?)\1(?![^\s)\]},.:;])""")
ORDINARY = re.compile(r"[a-z]+[,.:;]?|\W+")  # words of a message that say nothing about a document

Result = TypeVar("Result")


class WrongLengthError(TypeError):
    """Code that takes a batch gave more or fewer values than documents: which belong to which is unknown."""


class Failure(NamedTuple):
    """Why a document was set aside: a row of FAILURES_SCHEMA."""

    id: str
    name: str
    error: str
    message: str
    place: str


def failures_table(failures: list[Failure]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([failure._asdict() for failure in failures], schema=FAILURES_SCHEMA)


def tried(
    call: Callable[[pa.RecordBatch], Result], batch: pa.RecordBatch
) -> Iterator[tuple[pa.RecordBatch, Result | BaseException]]:
    """`call(batch)`; where it raises, the halves of the batch, down to the single documents that it fails on.
    After a WrongLengthError it fails on every document of the batch.

    In the order of the batch. With f failures in n documents, each document is passed about f * log2(n) times
    at most.
    """
    try:
        result = call(batch)
    except PluginError:
        raise
    except WrongLengthError as error:
        yield from ((batch.slice(row, 1), error) for row in range(batch.num_rows))
    except RAISED as error:
        if batch.num_rows == 1:
            yield batch, error
            return
        half = batch.num_rows // 2
        yield from tried(call, batch.slice(0, half))
        yield from tried(call, batch.slice(half))
    else:
        yield batch, result


def failure(document: pa.RecordBatch, name: str, code: Code, error: BaseException) -> Failure:
    """What is recorded about the one document in this batch. No message holds the document's text."""
    text = document.column("text")[0].as_py() if "text" in document.schema.names else ""
    where = place(error, code.__module__).strip(" ()")
    return Failure(document.column("id")[0].as_py(), name, type(error).__name__, _masked(error, text), where)


def _masked(error: BaseException, text: str) -> str:
    """The message with `...` for what it quotes of the document: quoted pieces, names and numbers, and every
    stretch of SHARED_CHARACTERS.
    """
    said, text = message(error)[:MESSAGE_CHARACTERS], " ".join(text.split())
    said = QUOTED.sub(lambda quoted: "'...'" if quoted[2] in text else quoted[0], said)
    words = said.split()
    said = " ".join("..." if word in text and not ORDINARY.fullmatch(word) else word for word in words)
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
        yield Document(id_.as_py(), text.as_py(), url.as_py(), json.loads(values) if values else {})


def constructed(code: Code, params: Mapping[str, Any], reference: str) -> Any:
    """The object of a class, made once in each process."""
    return _constructed(code, canonical_json(params), reference)


@lru_cache(maxsize=16)
def _constructed(code: Code, params: str, reference: str) -> Any:
    try:
        return code(**json.loads(params))
    except RAISED as error:
        raise PluginError(f"{reference} cannot be constructed: {described(error, code.__module__)}") from None
