"""Documents of XML, most of them in zip archives, as EPUB, `.docx` and `.odt` are."""

import io
import zlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import BinaryIO
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.source import Reason, RefusedError

MAX_PACKED_BYTES = 256 << 20  # most of such a file are pictures
# What a damaged archive raises, of which zipfile checks little. It is in memory, so no OSError is of a disk.
BROKEN = (
    *(BadZipFile, NotImplementedError, zlib.error, ElementTree.ParseError),
    *(OSError, EOFError, LookupError, ValueError),
)


class Archive:
    """The files in an archive, of at most MAX_DOCUMENT_BYTES together, however well they are packed."""

    def __init__(self, packed: bytes):
        self._zip = ZipFile(io.BytesIO(packed))
        self._left = MAX_DOCUMENT_BYTES

    def __contains__(self, name: str) -> bool:
        return name in self._zip.namelist()

    def read(self, name: str) -> bytes:
        """The content of a file. Raises RefusedError, and BROKEN."""
        try:
            with self._zip.open(name) as file:
                content = file.read(self._left + 1)
        except (RuntimeError, NotImplementedError) as error:
            raise RefusedError(Reason.BROKEN_DATA, f"{name} cannot be unpacked: {error}") from error
        self._left -= len(content)
        if self._left < 0:
            raise RefusedError(Reason.TOO_LONG, f"its text has more than {MAX_DOCUMENT_BYTES} bytes")
        return content

    def xml(self, name: str) -> BinaryIO:
        """A file of XML that is safe to parse: entities may unfold to any size. Raises as `read` does."""
        return safe_xml(name, self.read(name))


def safe_xml(name: str, content: bytes) -> BinaryIO:
    """The content if it is safe to parse. Raises RefusedError."""
    if b"<!ENTITY" in content.replace(b"\0", b""):
        raise RefusedError(Reason.BROKEN_DATA, f"{name} defines entities")
    return io.BytesIO(content)


def document_text(texts: Callable[[bytes], Iterator[str]], file: bytes) -> str:
    """What `texts` gives of a file, together. Raises RefusedError."""
    try:
        return "".join(texts(file)).strip()
    except BROKEN as error:
        why = f"the file is damaged, or of another format: {error}"
        raise RefusedError(Reason.BROKEN_DATA, why) from error


def local(name: str | None) -> str:
    """A name of XML without its namespace, which has several versions."""
    return (name or "").rpartition("}")[2]


Block = Enum("Block", "PARAGRAPH CELL ROW TABLE")


class Flow:
    """The layout of a text that is read piece by piece: a blank line is behind each paragraph, the cells of a
    row of a table have a tab in between.
    """

    def __init__(self) -> None:
        self._before = ""  # what stands before the next text
        self._cells = 0

    def begins(self, block: Block | None) -> None:
        self._cells += block is Block.CELL

    def ends(self, block: Block | None) -> None:
        if block is Block.PARAGRAPH:
            self._before = self._before or " " if self._cells else "\n\n"
        elif block is Block.CELL:
            self._cells -= 1
            self._before = self._before.rstrip(" ") + "\t"
        elif block is not None:
            self._before = "\n" if block is Block.ROW else "\n\n"

    def text(self, text: str) -> str:
        """The text and what stands before it."""
        before, self._before = self._before, ""
        return before + text
