"""OpenDocument: the text in its order, and damaged, closed or hostile files set aside."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.sources.formats.odt import odt_text
from pipeline.sources.formats.zipped import BROKEN, Archive
from pipeline.sources.source import RefusedError
from tests.pipeline.sources import reading
from tests.pipeline.sources.formats.test_books_and_notebooks import BOMB, read, zipped

NAMES = ("office", "text", "table", "draw", "svg", "dc", "manifest")
SPACES = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in NAMES)


def odt(body: str, **more: str) -> bytes:
    document = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document-content {SPACES}>'
        f"<office:styles>s</office:styles><office:body><office:text>{body}</office:text></office:body></office:document-content>"
    )
    files = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": document}
    return zipped({**files, **{name.replace("_", "/", 1): content for name, content in more.items()}})


def closed(entry: str) -> dict[str, str]:
    kept = '<manifest:encryption-data manifest:checksum="x"/>'
    return {
        "META-INF_manifest.xml": f"<manifest:manifest {SPACES}><manifest:file-entry "
        f'manifest:full-path="{entry}">{kept}</manifest:file-entry></manifest:manifest>'
    }


def p(text: str) -> str:
    return f"<text:p>{text}</text:p>"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"<text:h>Title</text:h>{p('One.')}{p('')}{p('Two.')}", "Title\n\nOne.\n\nTwo."),
        (p("\n   a <text:span>b\n\t</text:span> c  ") + p("d"), "a b c\n\nd"),
        (p('a<text:s text:c="3"/>b<text:s/>c<text:tab/>d<text:line-break/>e'), "a   b c\td\ne"),
        (p("a<text:soft-page-break/>b &amp; &#233;\u00a0 字"), "ab & é\u00a0 字"),
        (
            p(
                "word<text:note><text:note-citation>1</text:note-citation><text:note-body>"
                f"{p('A note. ')}{p('More.')}</text:note-body></text:note> goes on."
            )
            + p("End."),
            "word goes on.\n\nEnd.\n\nA note.\n\nMore.",
        ),
        (
            f"<text:tracked-changes><text:changed-region><text:deletion>{p('gone')}</text:deletion>"
            f"</text:changed-region></text:tracked-changes>{p('here <text:change/>now')}",
            "here now",
        ),
        (p(f"a <office:annotation><dc:creator>Jo</dc:creator>{p('remark ')}</office:annotation>b"), "a b"),
        (
            f"<text:table-of-content><text:index-body>{p('1 Title 3')}</text:index-body>"
            f"</text:table-of-content>{p('x')}",
            "x",
        ),
        (
            "<table:table><table:table-header-rows><table:table-row>"
            f"<table:table-cell>{p('a')}{p('')}</table:table-cell><table:table-cell/>"
            f"<table:table-cell>{p('c')}{p('d')}</table:table-cell></table:table-row>"
            f"</table:table-header-rows><table:table-row><table:table-cell>{p('e')}</table:table-cell>"
            f"</table:table-row></table:table>{p('f')}",
            "a\t\tc d\ne\n\nf",
        ),
        (
            f"<text:list><text:list-item>{p('one')}</text:list-item><text:list-item>{p('two')}"
            "</text:list-item></text:list>",
            "one\n\ntwo",
        ),
        (
            p(
                f"<draw:frame><draw:text-box>{p('box')}</draw:text-box><svg:title>t</svg:title></draw:frame>text"
            ),
            "box\n\ntext",
        ),
    ],
)
def test_a_document_gives_its_text_as_it_is_read(tmp_path: Path, body: str, text: str) -> None:
    assert read(tmp_path, "a.odt", odt(body)) == ([text], [])
    assert read(tmp_path, "b.ODT", odt(body)) == ([text], [])


@pytest.mark.parametrize(
    ("content", "reason", "why"),
    [
        (odt(p("x"))[:-30], "broken_data", "damaged"),
        (zipped({"mimetype": "x"}), "broken_data", "content.xml"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "unsupported_format", "Office document"),
        (odt(p("")), "empty_text", "no text"),
        (odt(BOMB + p("&b;")), "broken_data", "defines entities"),
        (odt("<text:p>" * 3), "broken_data", "mismatched tag"),
        (odt(p('<text:s text:c="x"/>')), "broken_data", "invalid literal"),
        (odt(p("x"), **closed("content.xml")), "broken_data", "the document is encrypted"),
        (
            zipped({"META-INF/manifest.xml": closed("encrypted-package")["META-INF_manifest.xml"]}),
            "broken_data",
            "the document is encrypted",
        ),
    ],
)
def test_what_cannot_be_read_is_set_aside_with_the_reason(
    tmp_path: Path, content: bytes, reason: str, why: str
) -> None:
    texts, [(found, detail)] = read(tmp_path, "a.odt", content)
    assert (texts, found) == ([], reason)
    assert why in detail


def test_a_document_that_unfolds_or_nests_without_end_takes_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = odt(p('a<text:s text:c="999999999"/>b'))
    assert [len(text) for text in read(tmp_path, "a.odt", spaces)[0]] == [82]
    deep = odt("<text:section>" * 100_000 + p("x") + "</text:section>" * 100_000)
    assert read(tmp_path, "b.odt", deep)[0] in (["x"], [])
    monkeypatch.setattr("pipeline.sources.formats.zipped.MAX_DOCUMENT_BYTES", 1 << 20)
    texts, [(reason, _)] = read(tmp_path, "c.odt", odt(p("") * 200_000))
    assert (texts, reason) == ([], "too_long")


@given(st.integers(0), st.binary(min_size=1, max_size=6))
@example(553, b"\0\0@")  # a version that zipfile does not know
@settings(deadline=None, max_examples=100)
def test_damage_anywhere_is_an_error_that_is_expected(place: int, damage: bytes) -> None:
    content = odt(p("The way") * 20, **closed("x"))
    place %= len(content)
    with suppress(RefusedError, *BROKEN):
        list(odt_text(Archive(content[:place] + damage + content[place + 3 :])))


def test_a_flat_document_and_a_template_are_read_as_any_other(tmp_path: Path) -> None:
    picture = "<draw:image><office:binary-data>aGVsbG8=</office:binary-data></draw:image>"
    header = f"<office:master-styles><style:header>{p('Page 1')}</style:header></office:master-styles>"
    body = f"<text:h>Title</text:h>{p('One ' + picture + 'picture.')}"
    flat = (
        f'<office:document {SPACES} xmlns:style="urn:x">{header}<office:body><office:text>{body}'
        "</office:text></office:body></office:document>"
    )
    (tmp_path / "a.fodt").write_text(flat)
    for name in ("b.ott", "c.odp"):
        (tmp_path / name).write_bytes(odt(body))
    for name in ("a.fodt", "b.ott", "c.odp"):
        [row], rejects = reading.read(tmp_path / name)
        assert (row["text"], rejects) == ("Title\n\nOne picture.", [])


@pytest.mark.parametrize(
    "flat", ["<office:document", "", "no xml", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>']
)
def test_a_flat_document_that_is_none_is_set_aside(tmp_path: Path, flat: str) -> None:
    (tmp_path / "a.fodt").write_text(flat or " ")
    assert reading.read(tmp_path / "a.fodt") == ([], [(None, "broken_data")])
