"""EPUB, Office documents and notebooks: their text in order; damaged, closed or hostile files set aside."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources.formats.docx import paragraphs, slides
from pipeline.sources.formats.epub import chapters
from pipeline.sources.formats.zipped import BROKEN, Archive
from pipeline.sources.source import RefusedError
from tests.pipeline.sources.reading import documents_and_rejects

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"


def zipped(files: dict[str, str | bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980, since names of tests hold the bytes
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def word(body: str, main: str = "word/document.xml", **more: str) -> bytes:
    relations = f'<Relationships><Relationship Type="{OFFICE}" Target="/{main}"/></Relationships>'
    document = f'<?xml version="1.0"?><w:document {W}><w:body>{body}</w:body></w:document>'
    notes = {f"word/{name}.xml": f"<w:notes {W}>{content}</w:notes>" for name, content in more.items()}
    return zipped({"_rels/.rels": relations, main: document, **notes})


def relations(**targets: tuple[str, str]) -> str:
    listed = (
        f'<Relationship Id="{id}" Type="{OFFICE.replace("officeDocument", kind)}" Target="{target}"/>'
        for id, (kind, target) in targets.items()
    )
    return f"<Relationships>{''.join(listed)}</Relationships>"


def presentation(shown: Sequence[str], notes: str = "") -> bytes:
    """The slides are stored in the order of their names, and shown in another."""
    drawing = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    ids = "".join(f'<p:sldId id="{300 + at}" r:id="r{at}"/>' for at in range(len(shown)))
    main = f'<p:presentation xmlns:p="x" xmlns:r="y"><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>'
    files = {f"ppt/slides/slide{9 - at}.xml": f"<x {drawing}>{body}</x>" for at, body in enumerate(shown)}
    places = {f"r{at}": ("slide", f"slides/slide{9 - at}.xml") for at in range(len(shown))}
    if notes:
        files["ppt/notesSlides/n.xml"] = f"<x {drawing}>{notes}</x>"
        to_notes = relations(r1=("image", "../media/a.png"), r2=("notesSlide", "../notesSlides/n.xml"))
        files["ppt/slides/_rels/slide9.xml.rels"] = to_notes
    main_relations = relations(**places, m=("slideMaster", "slideMasters/m.xml"))
    root = relations(a=("officeDocument", "ppt/presentation.xml"))
    start = {"_rels/.rels": root, "ppt/presentation.xml": main}
    return zipped({**start, "ppt/_rels/presentation.xml.rels": main_relations, **files})


def a_p(*runs: str) -> str:
    return f"<a:p><a:pPr/>{''.join(f'<a:r><a:t>{run}</a:t></a:r>' for run in runs)}</a:p>"


def p(*runs: str, properties: str = "") -> str:
    texts = (f'<w:r><w:t xml:space="preserve">{run}</w:t></w:r>' for run in runs)
    return f"<w:p><w:pPr>{properties}</w:pPr>{''.join(texts)}</w:p>"


def book(pages: dict[str, str], folder: str = "OEBPS/", **more: str | bytes) -> bytes:
    """A book whose spine has the pages in this order; the manifest has them in another."""
    items = "".join(
        f'<item id="{n}" href="{name}" media-type="application/xhtml+xml" properties="{name[:3]}"/>'
        for n, name in sorted(enumerate(pages), key=lambda one: one[1])
    )
    spine = "".join(f'<itemref idref="{n}"/>' for n in range(len(pages)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
        '<item id="c" href="c.css" media-type="text/css"/>'
        f'{items}</manifest><spine><itemref idref="c"/><itemref idref="lost"/>{spine}</spine></package>'
    )
    container = f'<container><rootfiles><rootfile full-path="{folder}content.opf"/></rootfiles></container>'
    files = {f"{folder}{name.replace('%20', ' ')}": page(body) for name, body in pages.items()}
    return zipped(
        {"META-INF/container.xml": container, f"{folder}content.opf": package, **files, **more}  # type: ignore[dict-item]
    )


def page(body: str) -> str:
    head = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>'
    return f"{head}<body>{body}</body></html>"


def read(tmp_path: Path, name: str, content: bytes, **config: Any) -> tuple[list[str], list[tuple[str, str]]]:
    (tmp_path / name).write_bytes(content)
    rows, rejects = documents_and_rejects(tmp_path / name, **config)
    return [row["text"] for row in rows], [(str(one.reason), one.detail) for one in rejects]


@pytest.mark.parametrize("main", ["word/document.xml", "word/document2.xml"])
def test_word_gives_paragraphs_tables_and_notes_once(tmp_path: Path, main: str) -> None:
    row = "<w:tr>{}</w:tr>".format("".join(f"<w:tc>{p(cell)}{p()}</w:tc>" for cell in ("a", "", "c d")))
    body = "".join(
        (
            p("The ", "way", properties='<w:tabs><w:tab w:val="left" w:pos="720"/></w:tabs>'),
            p() * 3,
            "<w:p><w:r><w:t>one</w:t><w:tab/><w:t>two</w:t><w:br/><w:t>three</w:t></w:r></w:p>",
            f"<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins>{p('new')}</w:ins>",
            f"<w:moveFrom>{p('moved')}</w:moveFrom><w:moveTo>{p('moved')}</w:moveTo>",
            f"<w:tbl>{row * 2}</w:tbl>",
            f"<w:p><w:r><Choice>{p('box')}</Choice><Fallback>{p('box')}</Fallback></w:r></w:p>",
            "<w:p><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>" + p("end &amp; &#233;"),
        )
    )
    texts, rejects = read(tmp_path, "a.docx", word(body, main, footnotes=p("A note."), comments=p("No.")))
    assert rejects == []
    assert texts == [
        "The way\n\none\ttwo\nthree\n\nnew\n\nmoved\n\na\t\tc d\na\t\tc d\n\nbox\n\nend & é\n\nA note."
    ]


def test_slides_are_read_as_they_are_shown_each_before_its_notes(tmp_path: Path) -> None:
    cell = "".join(f"<a:tc><a:txBody>{a_p(text)}</a:txBody></a:tc>" for text in ("a", "b"))
    first = a_p("The ", "way") + '<a:p><a:fld type="slidenum"><a:t>1</a:t></a:fld></a:p>'
    second = a_p("one</a:t></a:r><a:br/><a:r><a:t>two") + f"<a:tbl><a:tr>{cell}</a:tr></a:tbl>"
    content = presentation([first, second], notes=a_p("Say it slowly."))
    for name in ("a.pptx", "b.PPSX"):
        assert read(tmp_path, name, content) == (["The way\n\nSay it slowly.\n\none\ntwo\n\na\tb"], [])


def test_a_book_gives_all_its_pages_in_the_order_of_the_spine(tmp_path: Path) -> None:
    pytest.importorskip("resiliparse")
    pages = {
        "z.xhtml": "<h1>One</h1><p>It was the best of times.</p><aside><p>A note.</p></aside>",
        "nav.xhtml": "<nav><ol><li>One</li></ol></nav>",
        "a%20b.xhtml": '<p class="author copyright">Two, <i>字</i>.</p><footer><p>The end.</p></footer>',
    }
    for folder in ("OEBPS/", ""):
        texts, rejects = read(tmp_path, "a.epub", book(pages, folder))
        assert rejects == []
        assert texts == ["One\n\nIt was the best of times.\n\nA note.\n\nTwo, 字.\n\nThe end."]
    assert read(tmp_path, "b.epub.gz", gzip.compress(book(pages)))[0] == texts
    assert (
        len(read(tmp_path, "c.epub", book({"a.xhtml": f"<p>{'word ' * 999}</p>"}), piece_bytes=1024)[0]) > 3
    )


def test_a_notebook_gives_text_and_code_and_nothing_that_was_printed(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Words."]},
        {"cell_type": "code", "source": "print(1)\n", "outputs": [{"text": "printed"}]},
        {"cell_type": "code", "source": []},
        {"cell_type": "raw", "source": "raw"},
    ]
    notebook = {"cells": cells, "metadata": {"kernelspec": {"language": "julia", "name": "julia-1.9"}}}
    old = {
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "source": "Old"},
                    {"cell_type": "code", "language": "python", "input": ["x = 1"], "outputs": []},
                ]
            }
        ]
    }
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        found = read(tmp_path, "a.ipynb", json.dumps(notebook).encode(encoding), encoding="latin-1")
        assert found == (["# Title\nWords.\n\n```julia\nprint(1)\n```\n\nraw"], [])
    assert read(tmp_path, "b.ipynb", json.dumps(old).encode())[0] == ["## Old\n\n```python\nx = 1\n```"]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("name", "content", "reason", "why"),
    [
        ("a.docx", word(p("x"))[:-30], "broken_data", "damaged"),
        ("a.docx", zipped({"x": "y"}), "broken_data", "_rels/.rels"),
        ("a.docx", b"\xd0\xcf\x11\xe0" + bytes(600), "unsupported_format", "Office document"),
        ("a.docx", b"plain text", "broken_data", "not a zip file"),
        ("a.docx", word(p()), "empty_text", "no text"),
        ("a.docx", zipped({"_rels/.rels": BOMB + "<x>&b;</x>"}), "broken_data", "defines entities"),
        ("a.docx", zipped({"_rels/.rels": (BOMB + "<x/>").encode("utf-16")}), "broken_data", "entities"),
        ("a.docx", word("<w:p>" * 3), "broken_data", "mismatched tag"),
        ("a.pptx", word(p("A text.")), "empty_text", "no text"),
        ("a.pptx", zipped({"_rels/.rels": relations()}), "broken_data", "not enough values"),
        ("a.epub", zipped({"_rels/.rels": "x"}), "broken_data", "container.xml"),
        ("a.epub", zipped({"META-INF/container.xml": "<container/>"}), "broken_data", "not enough values"),
        ("a.ipynb", b"[1, 2]", "invalid_json", "not a notebook"),
        ("a.ipynb", b'{"cells": [{"cell_type": "code"}]}', "invalid_json", "not a notebook"),
        ("a.ipynb", b'{"cells": [' + b"[" * 100_000, "invalid_json", "not a notebook"),
        ("a.ipynb", b"not json", "invalid_json", "not a notebook"),
        ("a.ipynb", b'{"cells": []}', "empty_text", "no text"),
    ],
)
def test_what_cannot_be_read_is_set_aside_with_the_reason(
    tmp_path: Path, name: str, content: bytes, reason: str, why: str
) -> None:
    texts, [(found, detail)] = read(tmp_path, name, content)
    assert (texts, found) == ([], reason)
    assert why in detail


def test_a_closed_book_and_a_file_that_unfolds_without_end_are_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("resiliparse")
    closed = '<encryption><CipherReference URI="OEBPS/a%20b.xhtml"/></encryption>'
    locked = book({"a%20b.xhtml": "<p>x</p>"}, **{"META-INF/encryption.xml": closed})
    assert read(tmp_path, "a.epub", locked) == ([], [("broken_data", "the book is encrypted")])
    monkeypatch.setattr("pipeline.sources.formats.zipped.MAX_DOCUMENT_BYTES", 1 << 20)
    texts, [(reason, _)] = read(tmp_path, "b.docx", word("<w:p/>" * 200_000))
    assert (texts, reason) == ([], "too_long")


@given(st.integers(0), st.binary(min_size=1, max_size=6), st.sampled_from([paragraphs, slides, chapters]))
@settings(deadline=None, max_examples=150)
def test_damage_anywhere_is_an_error_that_is_expected(
    place: int, damage: bytes, texts: Callable[[Archive], Iterator[str]]
) -> None:
    contents = {
        paragraphs: word(p("The way") * 20, footnotes=p("A note.")),
        slides: presentation([a_p("The way")] * 3, notes=a_p("A note.")),
        chapters: book({}),
    }
    content = contents[texts]
    place %= len(content)
    with suppress(RefusedError, *BROKEN):
        list(texts(Archive(content[:place] + damage + content[place + 3 :])))
