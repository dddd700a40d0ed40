"""Word's `.docx`: the paragraphs of the text and the notes, without changes that were deleted."""

import posixpath
from collections.abc import Iterator
from xml.etree import ElementTree

from pipeline.sources.formats.zipped import Archive, Block, Flow, local

RELATIONS = "_rels/.rels"
NOTES = ("footnotes.xml", "endnotes.xml")
# Where a paragraph was moved from, and a drawing for older programs: their text is there twice.
TWICE = ("moveFrom", "Fallback")
BLOCKS = {"p": Block.PARAGRAPH, "tc": Block.CELL, "tr": Block.ROW, "tbl": Block.TABLE}
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
    twice, flow = 0, Flow()
    for event, element in ElementTree.iterparse(document.xml(name), ("start", "end")):
        tag = local(element.tag)
        block, begins = BLOCKS.get(tag), event == "start"
        twice += (tag in TWICE) * (1 if begins else -1)
        if twice:
            continue
        if begins:
            flow.begins(block)
            continue
        is_place_for_tabs = tag == "tab" and element.attrib
        if tag == "t" or (tag in SIGNS and not is_place_for_tabs):
            yield flow.text(element.text or "" if tag == "t" else SIGNS[tag])
        elif block is Block.PARAGRAPH:
            element.clear()
        flow.ends(block)
    yield "\n\n"
