"""EPUB: the text of a book in the order in which it is read."""

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree import ElementTree

from pipeline.sources.formats.zipped import Archive, local
from pipeline.sources.source import Reason, RefusedError
from pipeline.sources.web.pages import page_text

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
PAGES = ("application/xhtml+xml", "text/html", "text/x-oeb1-document")


def chapters(book: Archive) -> Iterator[str]:
    """The text of each page, without the table of contents. Raises RefusedError, and what a damaged
    archive raises.
    """
    [package, *_] = [one.attrib["full-path"] for one in _elements(book, CONTAINER, "rootfile")]
    items = {one.get("id"): one for one in _elements(book, package, "item")}
    closed = {unquote(one.attrib["URI"]) for one in _elements(book, ENCRYPTION, "CipherReference")}
    for place in _elements(book, package, "itemref"):
        item = items.get(place.get("idref"))
        if item is None or item.get("media-type") not in PAGES or "nav" in item.get("properties", "").split():
            continue
        href = unquote(item.attrib["href"].partition("#")[0])
        name = posixpath.normpath(posixpath.join(posixpath.dirname(package), href))
        if name in closed:
            raise RefusedError(Reason.BROKEN_DATA, "the book is encrypted")
        try:
            text = page_text(book.read(name), "utf-8", "all")
        except RefusedError as error:
            raise RefusedError(error.reason, f"{name}: {error}") from None
        yield f"{text.strip()}\n\n"


def _elements(book: Archive, name: str, tag: str) -> Iterator[ElementTree.Element]:
    """The elements of a file, if there is one; every book has a container."""
    if name == CONTAINER or name in book:
        for _, element in ElementTree.iterparse(book.xml(name)):
            if local(element.tag) == tag:
                yield element
