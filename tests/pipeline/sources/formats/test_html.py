"""HTML files: the main text of each page is a document."""

import gzip
import html
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources.web.pages import page_text
from tests.pipeline.sources.reading import documents_and_rejects

pytest.importorskip("resiliparse")
SAID = "Der Weg führt über die Brücke, und danach sieht man das Meer. " * 5


def page(said: str = SAID, charset: str = "utf-8") -> bytes:
    return (
        f'<!DOCTYPE html><html><head><meta charset="{charset}"><title>The way</title>'
        '<script>var x = 1</script></head><body><nav><ul><li><a href="/">Home</a></li></ul></nav>'
        f"<article><h1>The way</h1><p>{said}</p></article><footer>All rights reserved</footer></body></html>"
    ).encode(charset)


@pytest.mark.parametrize("suffix", ["html", "htm", "xhtml", "HTML"])
@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "utf-16"])
def test_the_text_of_a_page_is_read_in_the_encoding_that_it_names(
    tmp_path: Path, suffix: str, charset: str
) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(page(charset=charset))
    [row], rejects = documents_and_rejects(tmp_path / f"a.{suffix}")
    assert rejects == []
    assert SAID.strip() in row["text"] and "The way" in row["text"]
    assert not any(word in row["text"] for word in ("Home", "var x", "rights", "<p>"))


def test_many_pages_beside_other_files_and_one_of_them_cut(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02}.html").write_bytes(page(f"Page {number}. {SAID}"))
    (tmp_path / "note.txt").write_text("A note.")
    (tmp_path / "cut.html.gz").write_bytes(gzip.compress(page())[:-12])
    (tmp_path / "empty.html").write_text("<html><body></body></html>")
    rows, rejects = documents_and_rejects(tmp_path / "*")
    assert sum("Page" in row["text"] for row in rows) == 40
    assert sum(SAID[:60] in row["text"] for row in rows) == 41
    assert sorted((one.file, str(one.reason)) for one in rejects) == [
        ("cut.html.gz", "broken_compression"),
        ("empty.html", "empty_text"),
    ]


def test_a_long_page_is_cut_into_pieces(tmp_path: Path) -> None:
    (tmp_path / "book.html").write_bytes(page("</p><p>".join(f"{n}. {SAID}" for n in range(50))))
    rows, _ = documents_and_rejects(tmp_path / "book.html", piece_bytes=2048)
    assert len(rows) > 5
    assert all(len(row["text"].encode()) <= 2048 for row in rows)


@pytest.mark.parametrize(
    "empty", ["<title/>", '<script src="a.js"/>', "<style />", '<iframe src="b"/>', "<textarea/>"]
)
@pytest.mark.parametrize("head", ['<?xml version="1.0" encoding="utf-8"?>', "<!DOCTYPE html>", ""])
def test_an_empty_element_of_xhtml_does_not_swallow_the_page(tmp_path: Path, empty: str, head: str) -> None:
    written = (
        f'<script>var x = "<script/>"</script>{empty}</head><body>{empty}<p>{SAID}</p>{empty}<p>{SAID}</p>'
    )
    (tmp_path / "a.xhtml").write_text(
        f'{head}<html xmlns="http://www.w3.org/1999/xhtml"><head>{written}</body></html>'
    )
    [row], rejects = documents_and_rejects(tmp_path / "a.xhtml")
    assert rejects == []
    assert row["text"].count(SAID.strip()) == 2 and "var x" not in row["text"]


@given(
    st.lists(
        st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=3),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from(["i", "b", "span"]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_no_text_is_lost_because_it_is_short_and_between_two_tags(
    parts: list[str], tag: str, escaped: bool
) -> None:
    """But for the mark of a paragraph, which is a link to it."""
    parts = [part for part in parts if part != "¶"]
    written = (f"<{tag}>{_referenced(part) if escaped else html.escape(part)}</{tag}>" for part in parts)
    text = page_text(page(f"{SAID}</p><p>One {''.join(written)} two"), "utf-8")
    assert f"One {''.join(parts)} two" in text


def _referenced(text: str) -> str:
    return "".join(f"&#{ord(character)};" for character in text)


def test_icons_links_to_a_heading_and_the_readings_above_characters_are_left_out(tmp_path: Path) -> None:
    ruby = "<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>を読む。"
    (tmp_path / "a.html").write_bytes(
        page(f"{SAID}</p><p>{ruby}<i>&#xf101;</i><i>\uf102</i> <b>\u200d</b><a>¶</a>end")
    )
    [row], _ = documents_and_rejects(tmp_path / "a.html")
    assert row["text"].split("\n")[-1] == "漢字を読む。 end"


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        (
            '<math><semantics><mrow><mi>E</mi></mrow><annotation encoding="application/x-tex">'
            "{\\displaystyle E=mc^{2}}</annotation></semantics></math>",
            "$E=mc^{2}$",
        ),
        (
            "<math alttext='\\frac{a}{b}' display='block'><mfrac><mi>a</mi><mi>b</mi></mfrac></math>",
            "$\\frac{a}{b}$",
        ),
        ('<math alttext="a &lt; b"><mi>a</mi><mo>&lt;</mo><mi>b</mi></math>', "$a < b$"),
        ('<math alttext="{\\displaystyle x}"><mi>x</mi></math>', "$x$"),
        ("<math><mi>a</mi><mo>+</mo><mi>b</mi></math>", "a+b"),
        ('<math alttext=""><mi>a</mi><mo>+</mo><mi>b</mi></math>', "a+b"),
    ],
)
@pytest.mark.parametrize("extractor", ["resiliparse", "all"])
def test_a_formula_is_its_tex_where_the_page_has_it(formula: str, said: str, extractor: str) -> None:
    text = page_text(page(f"{SAID} We have {formula} here. {SAID}"), "utf-8", extractor)  # type: ignore[arg-type]
    assert f"We have {said} here." in text


def test_a_page_of_open_formulas_is_read_in_time() -> None:
    text = page_text(page(SAID + "<math>" * 20_000), "utf-8")
    assert SAID.strip() in text
