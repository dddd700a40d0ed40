"""Word's `.docx`: the paragraphs of the text and the notes, without changes that were deleted. PowerPoint's
`.pptx`: those of each slide and of what the speaker notes on it.
"""

import posixpath
from collections.abc import Iterator
from xml.etree import ElementTree

from pipeline.sources.formats.zipped import Archive, Block, Flow, local

NOTES = ("footnotes.xml", "endnotes.xml")
# Where a paragraph was moved from, and a drawing for older programs: their text is there twice. The number of
# a slide, and a date.
LEFT_OUT = ("moveFrom", "Fallback", "fld")
BLOCKS = {"p": Block.PARAGRAPH, "tc": Block.CELL, "tr": Block.ROW, "tbl": Block.TABLE}
SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def paragraphs(document: Archive) -> Iterator[str]:
    """The text in pieces. A blank line is behind each paragraph; the cells of a row of a table have a tab in
    between. Raises RefusedError, and what a damaged archive raises.
    """
    main = _main(document)
    yield from _text(document, main)
    for name in NOTES:
        if (notes := posixpath.join(posixpath.dirname(main), name)) in document:
            yield from _text(document, notes)


def slides(document: Archive) -> Iterator[str]:
    """As `paragraphs`, of the slides in the order in which they are shown, each before its notes."""
    main = _main(document)
    names = {id: name for id, _, name in _related(document, main)}
    for _, element in ElementTree.iterparse(document.xml(main)):
        if local(element.tag) == "sldId":
            [id] = [value for key, value in element.attrib.items() if key.endswith("}id")]
            yield from _text(document, names[id])
            for _, kind, notes in _related(document, names[id]):
                if kind == "notesSlide":
                    yield from _text(document, notes)


def _main(document: Archive) -> str:
    [main, *_] = [name for _, kind, name in _related(document, "") if kind == "officeDocument"]
    return main


def _related(document: Archive, name: str) -> Iterator[tuple[str, str, str]]:
    """The files to which a file refers, or the archive itself: the id of each, its kind and its name."""
    folder, base = posixpath.split(name)
    if (relations := posixpath.join(folder, "_rels", f"{base}.rels")) in document or not name:
        for _, one in ElementTree.iterparse(document.xml(relations)):
            if (target := one.get("Target")) and one.get("TargetMode") != "External":
                kind = one.get("Type", "").rpartition("/")[2]
                yield one.get("Id", ""), kind, posixpath.normpath(posixpath.join("/", folder, target))[1:]


def _text(document: Archive, name: str) -> Iterator[str]:
    left_out, flow = 0, Flow()
    for event, element in ElementTree.iterparse(document.xml(name), ("start", "end")):
        tag = local(element.tag)
        block, begins = BLOCKS.get(tag), event == "start"
        left_out += (tag in LEFT_OUT) * (1 if begins else -1)
        if left_out:
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
