"""Word's `.docx`: the paragraphs of the text and the notes, without changes that were deleted."""

import posixpath
from collections.abc import Iterator
from xml.etree import ElementTree

from pipeline.sources.formats.zipped import Archive, local

RELATIONS = "_rels/.rels"
NOTES = ("footnotes.xml", "endnotes.xml")
# Where a paragraph was moved from, and a drawing for older programs: their text is there twice.
TWICE = ("moveFrom", "Fallback")
SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def paragraphs(document: Archive) -> Iterator[str]:
    """The text in pieces. A blank line is behind each paragraph; the cells of a row of a table have a tab in
    between. Raises UnreadableError, and what a damaged archive raises.
    """
    [main, *_] = [
        one.attrib["Target"].lstrip("/")
        for _, one in ElementTree.iterparse(document.xml(RELATIONS))
        if one.get("Type", "").endswith("/officeDocument")
    ]
    yield from _text(document, main)
    for name in NOTES:
        if (notes := posixpath.join(posixpath.dirname(main), name)) in document:
            yield from _text(document, notes)


def _text(document: Archive, name: str) -> Iterator[str]:
    twice, cells, before = 0, 0, ""  # what stands before the next text
    for event, element in ElementTree.iterparse(document.xml(name), ("start", "end")):
        tag, begins = local(element.tag), event == "start"
        twice += (tag in TWICE) * (1 if begins else -1)
        cells += (tag == "tc") * (1 if begins else -1)
        if begins or twice:
            continue
        is_place_for_tabs = tag == "tab" and element.attrib
        if tag == "t" or (tag in SIGNS and not is_place_for_tabs):
            yield before + (element.text or "" if tag == "t" else SIGNS[tag])
            before = ""
        elif tag == "p":
            before = before or " " if cells else "\n\n"
            element.clear()
        elif tag == "tc":
            before = before.rstrip(" ") + "\t"
        elif tag in ("tr", "tbl"):
            before = "\n" if tag == "tr" else "\n\n"
    yield "\n\n"
