"""The contract of a source: it lists units, and reads each into batches of documents and into rejects.

Errors stop a source from being read at all. What they say holds no secret.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Protocol

import pyarrow as pa
from pydantic import Field

from pipeline.store.errors import PipelineError

# `*.jsonl?` is a glob: a query has a `=`
_QUERY = re.compile(r"(\w://[^\s?]*)\?[^\s=]*=\S*?(?=['\"]?(?:\s|$))")


@dataclass(frozen=True)
class Unit:
    """A part of a source that is read independently, and read again only when its fingerprint changes.

    `name` is stable and holds no absolute path. `bytes` estimates the cost of reading. `revision` is the
    commit to read, if the source has commits; it is not part of the content. `files`: what each
    name is opened by, of a source that finds its files by listing, so that no worker lists them again.
    """

    name: str
    fingerprint: str
    bytes: int
    revision: str | None = None
    files: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)


MaxDocuments = Annotated[
    int | None,
    Field(
        ge=1,
        description="Documents to read at most: the first ones, with files in the order of their names. "
        "When not set, all.",
    ),
]


class Reason(StrEnum):
    """Why an input was rejected. The values are stored, so they never change."""

    INVALID_JSON = "invalid_json"
    NOT_AN_OBJECT = "not_an_object"
    INVALID_UTF8 = "invalid_utf8"
    LONE_SURROGATE = "lone_surrogate"
    NO_TEXT = "no_text"
    NULL_TEXT = "null_text"
    TEXT_NOT_A_STRING = "text_not_a_string"
    EMPTY_TEXT = "empty_text"
    TOO_LONG = "too_long"
    BAD_ID = "bad_id"
    DUPLICATE_ID = "duplicate_id"
    BROKEN_COMPRESSION = "broken_compression"
    BROKEN_PARQUET = "broken_parquet"
    BROKEN_CSV = "broken_csv"
    BROKEN_DATA = "broken_data"
    BROKEN_RECORD = "broken_record"
    NOT_A_PAGE = "not_a_page"
    PAGE_TOOK_TOO_LONG = "page_took_too_long"
    PAGE_BROKE_EXTRACTION = "page_broke_extraction"
    NOT_PYTHON = "not_python"
    NO_MESSAGES = "no_messages"
    UNKNOWN_ROLE = "unknown_role"
    CONTENT_NOT_TEXT = "content_not_text"
    NO_ANSWER = "no_answer"
    CHOSEN_EQUALS_REJECTED = "chosen_equals_rejected"
    NO_COMMON_BEGINNING = "no_common_beginning"
    CONTROL_CHARACTER = "control_character"
    TOOL_CALLS = "tool_calls"
    IMAGES = "images"
    REASONING = "reasoning"
    NOT_LEARNED = "not_learnt"  # as stores spell it
    PROMPT_DIFFERS = "prompt_differs"
    SYSTEM_DIFFERS = "system_differs"
    BAD_FORM = "bad_form"
    EMPTY_FILE = "empty_file"
    UNSUPPORTED_FORMAT = "unsupported_format"
    IS_A_DIRECTORY = "is_a_directory"
    NO_PERMISSION = "no_permission"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Rejected:
    """One rejected input. `row` counts from 1 (a line, a row, or a byte offset plus 1 in plain text); None
    stands for the entire file. `rows`: how many were lost. Where that is not known, `lost_bytes` says how
    much of the file on disk was lost.

    `detail` is stored as well: a new wording changes the data version of a corpus that has rejects.
    """

    file: str
    row: int | None
    reason: Reason
    detail: str
    lost_bytes: int = 0
    rows: int = 1


class RefusedError(Exception):
    """What cannot be read, or must not be learned: the input is set aside for this `reason`."""

    def __init__(self, reason: Reason, why: str):
        super().__init__(why)
        self.reason = reason


class Rejects(Protocol):
    """A list, or another collector of rejected inputs."""

    def append(self, rejected: Rejected, /) -> None: ...


class Source(Protocol):
    """Reads documents. Picklable, so that worker processes can read."""

    @property
    def version(self) -> str:
        """The version of the reading code; part of fingerprints."""
        ...

    def units(self) -> list[Unit]:
        """All units, ordered by name. Raises SourceError."""
        ...

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """Batches of DOCUMENT_SCHEMA with about BATCH_BYTES of text. Unreadable inputs go to `rejects`.

        Memory is bounded by one batch or one document, plus about 100 bytes for each document that brings
        its own id.
        """
        ...


def without_queries(text: str) -> str:
    """The text with each URL's query replaced by `...`: the query of a signed URL is a secret."""
    return _QUERY.sub(r"\1?...", text)


class SourceError(PipelineError):
    """A source that cannot be listed or read. The message says what to change; it shows no URL query."""

    def __init__(self, message: str) -> None:
        super().__init__(without_queries(message))


class ChangedError(SourceError):
    """A source that changed while it was read. What was read may be neither the old content nor the new."""


class OfflineError(SourceError):
    """A source that is not listed, because this machine is set to work offline or an earlier job has read it:
    what was read last is used.
    """
