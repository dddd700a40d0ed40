"""OpenDocument, zipped (`.odt`, of slides `.odp`) or flat (`.fodt`): the text of the paragraphs and tables,
then the notes, without changes that were deleted, comments and the table of contents.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree import ElementTree

from pipeline.sources.formats.zipped import Archive, Block, Flow, local, safe_xml
from pipeline.sources.source import Reason, RefusedError

MANIFEST, CONTENT = "META-INF/manifest.xml", "content.xml"
BLOCKS = {
    "p": Block.PARAGRAPH,
    "h": Block.PARAGRAPH,
    "table-cell": Block.CELL,
    "table-row": Block.ROW,
    "table": Block.TABLE,
}
LEFT_OUT = (
    *("tracked-changes", "annotation", "table-of-content", "note-citation", "ruby-text"),
    *("title", "desc", "binary-data"),  # of pictures
    "master-styles",  # of a flat document: headers and footers
)
SIGNS = {"tab": "\t", "line-break": "\n", "s": " "}
MOST_SPACES = 80  # that one element stands for, however many it names
_BLANKS = re.compile("[ \t\r\n]+")
_PIECE = 1 << 16


def odt_text(document: Archive) -> Iterator[str]:
    """The text in pieces, laid out as that of Word. Raises RefusedError, and what a damaged archive
    raises.
    """
    if MANIFEST in document:
        for _, element in ElementTree.iterparse(document.xml(MANIFEST)):
            if local(element.tag) == "encryption-data":
                raise RefusedError(Reason.BROKEN_DATA, "the document is encrypted")
    yield from _text_of(document.xml(CONTENT))


def flat_text(document: bytes) -> Iterator[str]:
    """As `odt_text`, of a document that is one file. Raises RefusedError and ElementTree.ParseError."""
    yield from _text_of(safe_xml("the file", document))


def _text_of(content: BinaryIO) -> Iterator[str]:
    found = _Content()
    parser = ElementTree.XMLParser(target=found)
    while piece := content.read(_PIECE):
        parser.feed(piece)
    parser.close()
    yield from (*found.body.pieces, "\n\n", *found.notes.pieces)


class _Text:
    """The body or the notes. White space counts as in ODF 1.3, part 3, section 6.1.2."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._flow = Flow()
        self._after_blank = True

    def begins(self, block: Block | None) -> None:
        self._flow.begins(block)
        self._after_blank |= block is Block.PARAGRAPH

    def ends(self, block: Block | None) -> None:
        self._flow.ends(block)
        if block is Block.PARAGRAPH:
            self.pieces[-1:] = [piece.removesuffix(" ") for piece in self.pieces[-1:]]
            self._after_blank = True

    def add(self, text: str) -> None:
        words = _BLANKS.sub(" ", text)
        words = words.removeprefix(" ") if self._after_blank else words
        if words:
            self.pieces.append(self._flow.text(words))
            self._after_blank = words.endswith(" ")

    def add_sign(self, sign: str) -> None:
        self.pieces.append(self._flow.text(sign))
        self._after_blank = False


class _Content:
    """What a parser tells of content.xml."""

    def __init__(self) -> None:
        self.body, self.notes = _Text(), _Text()
        self._left_out = self._in_notes = self._paragraphs = 0  # elements that are open

    @property
    def _text(self) -> _Text:
        return self.notes if self._in_notes else self.body

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = local(name)
        block = BLOCKS.get(tag)
        self._left_out += tag in LEFT_OUT
        if self._left_out:
            return
        self._in_notes += tag == "note-body"
        self._paragraphs += block is Block.PARAGRAPH
        self._text.begins(block)
        if tag in SIGNS:
            count = next((int(value) for key, value in attributes.items() if local(key) == "c"), 1)
            self._text.add_sign(SIGNS[tag] * min(count, MOST_SPACES))

    def end(self, name: str) -> None:
        tag = local(name)
        if not self._left_out:
            self._text.ends(BLOCKS.get(tag))
            self._paragraphs -= BLOCKS.get(tag) is Block.PARAGRAPH
            self._in_notes -= tag == "note-body"
        self._left_out -= tag in LEFT_OUT

    def data(self, text: str) -> None:
        if self._paragraphs and not self._left_out:
            self._text.add(text)
