"""The contract of a source: it lists units, and reads each into batches of documents."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from pipeline.sources.rejects import Rejects


@dataclass(frozen=True)
class Unit:
    """A part of a source that is read independently, and read again only when its fingerprint changes.

    `name` is stable and holds no absolute path. `bytes` estimates the cost of reading. `revision` is the
    commit to read, if the source has commits; it is not part of the content.
    """

    name: str
    fingerprint: str
    bytes: int
    revision: str | None = None


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
