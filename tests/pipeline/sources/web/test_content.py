"""A page arrives as text whatever coding and charset it was sent in, or is set aside by a reason that names
them; it is never published as bytes that nobody decoded.
"""

import bz2
import gzip
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard

pytest.importorskip("warcio", reason="needs the extra `web`")
pytest.importorskip("resiliparse", reason="needs the extra `web`")
pytest.importorskip("brotli", reason="brotli is not installed: it makes the pages")

import brotli

from pipeline.sources.web.warc import WarcConfig
from tests.pipeline.sources import reading
from tests.pipeline.sources.web.test_web_archives import html, page, record

read = partial(reading.read, kind=WarcConfig)
WORDS = "The lighthouse keeper wrote a line in his book each night."
TEXT = " ".join([WORDS] * 9)
JAPANESE = "灯台守は毎晩、彼の本に一行を書いた。" * 9

Coder = Callable[[bytes], bytes]


def raw_deflate(content: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(content) + compressor.flush()


CODERS: dict[str, tuple[str, Coder]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip in capitals": ("GZIP", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "two members": ("gzip", lambda body: gzip.compress(body[:50]) + gzip.compress(body[50:])),
    "deflate": ("deflate", zlib.compress),
    "deflate without a header": ("deflate", raw_deflate),
    "zstd": ("zstd", zstandard.compress),
    "br": ("br", brotli.compress),
    "two codings": ("gzip, br", lambda body: brotli.compress(gzip.compress(body))),
    "identity": ("identity", bytes),
    "stored decoded, header kept": ("br", bytes),
    "stored decoded, header gzip kept": ("gzip", bytes),
}
UNNAMED: dict[str, Coder] = {"gzip": gzip.compress, "zstd": zstandard.compress}


def archive(tmp_path: Path, *records: bytes) -> Path:
    path = tmp_path / "crawl.warc"
    path.write_bytes(b"".join(records))
    return path


@pytest.mark.parametrize("kind", ["text/html", "text/plain; charset=utf-8"])
@pytest.mark.parametrize("coding", CODERS)
def test_a_coding_is_undone(tmp_path: Path, coding: str, kind: str) -> None:
    name, code = CODERS[coding]
    if kind != "text/html" and coding == "stored decoded, header kept":
        pytest.skip("text that is no page may be anything that brotli makes")
    body = html(TEXT) if kind == "text/html" else TEXT
    sent = page("http://a/", code(body.encode()), kind=kind, **{"Content-Encoding": name})
    rows, rejects = read(archive(tmp_path, sent))
    assert rejects == []
    assert WORDS in rows[0]["text"] and "\ufffd" not in rows[0]["text"]


@pytest.mark.parametrize("coding", UNNAMED)
def test_a_compression_that_no_header_names_is_undone(tmp_path: Path, coding: str) -> None:
    rows, rejects = read(archive(tmp_path, page("http://a/", UNNAMED[coding](html(TEXT).encode()))))
    assert rejects == []
    assert WORDS in rows[0]["text"]


@pytest.mark.parametrize(
    ("coding", "body", "said"),
    [
        ("compress", b"\x1f\x9d\x90...", "the content coding 'compress' is none of gzip"),
        ("bzip2", bz2.compress(html(TEXT).encode()), "the content coding 'bzip2' is none of gzip"),
        (
            "gzip",
            gzip.compress(b"x" * 99)[:12] + b"damaged" * 9,
            "the content coding 'gzip' cannot be undone",
        ),
        ("zstd", zstandard.compress(b"x" * 99)[:8] + b"damaged" * 9, "the content coding 'zstd' cannot be"),
        ("br", b"\xff\xff\xff\xff\x00damaged", "the content coding 'br' cannot be undone"),
    ],
    ids=["unknown", "bzip2", "gzip", "zstd", "br"],
)
def test_a_coding_that_cannot_be_undone_costs_its_record_and_is_named(
    tmp_path: Path, coding: str, body: bytes, said: str
) -> None:
    sent = page("http://a/", body, **{"Content-Encoding": coding})
    path = archive(tmp_path, sent, page("http://b/", html(TEXT).encode()))
    rows, rejects = reading.documents_and_rejects(path, kind=WarcConfig)
    assert [row["url"] for row in rows] == ["http://b/"]
    assert [(one.row, str(one.reason)) for one in rejects] == [(1, "broken_record")]
    assert said in rejects[0].detail


def test_a_page_that_unpacks_to_more_than_a_page_may_have_is_set_aside(tmp_path: Path) -> None:
    for coding, code in (("gzip", gzip.compress), ("zstd", zstandard.compress), ("br", brotli.compress)):
        sent = page("http://a/", code(b" " * (17 << 20)), **{"Content-Encoding": coding})
        assert read(archive(tmp_path, sent)) == ([], [(1, "too_long")])


@pytest.mark.parametrize("charset", ["ISO-2022-JP", "Shift_JIS", "EUC-JP", "UTF-8", "utf-16le", '"utf-8"'])
@pytest.mark.parametrize("kind", ["text/plain", "text/html"])
def test_text_is_decoded_by_its_charset(tmp_path: Path, charset: str, kind: str) -> None:
    body = JAPANESE if kind == "text/plain" else html(JAPANESE)
    sent = page("http://a/", body.encode(charset.strip('"')), kind=f"{kind}; charset={charset}")
    rows, rejects = read(archive(tmp_path, sent))
    assert rejects == []
    assert "灯台守は毎晩、彼の本に一行を書いた。" in rows[0]["text"]


@pytest.mark.parametrize("kind", ["text/plain", "text/html"])
@pytest.mark.parametrize("label", ["iso-8859-1", "latin1", "us-ascii", "windows-1252"])
def test_a_label_means_what_browsers_mean_by_it(tmp_path: Path, label: str, kind: str) -> None:
    said = "It cost € 5, “cheap”, he said. " * 9
    body = said if kind == "text/plain" else html(said)
    rows, rejects = read(
        archive(tmp_path, page("http://a/", body.encode("cp1252"), kind=f"{kind}; charset={label}"))
    )
    assert rejects == []
    assert "€ 5, “cheap”" in rows[0]["text"]
    assert '"charset":"windows-1252"' in rows[0]["metadata"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_decides_and_is_no_text(tmp_path: Path, encoding: str) -> None:
    sent = page("http://a/", TEXT.encode(encoding), kind="text/plain; charset=iso-8859-1")
    wet = record("conversion", "http://b/", TEXT.encode(encoding), **{"Content-Type": "text/plain"})
    rows, rejects = read(archive(tmp_path, sent, wet))
    assert (rejects, [row["text"] for row in rows]) == ([], [TEXT, TEXT])


def test_text_that_its_charset_does_not_have_is_set_aside_with_its_name(tmp_path: Path) -> None:
    plain = page("http://a/", JAPANESE.encode("euc-jp"), kind="text/plain; charset=shift_jis")
    marked = page("http://b/", html(JAPANESE).encode("shift_jis"), kind="text/html; charset=utf-8")
    _, rejects = reading.documents_and_rejects(archive(tmp_path, plain, marked), kind=WarcConfig)
    assert [(one.row, str(one.reason)) for one in rejects] == [(1, "invalid_utf8"), (2, "invalid_utf8")]
    assert "shift_jis" in rejects[0].detail
    assert "cannot be decoded as utf-8" in rejects[1].detail


def test_what_the_library_raises_on_one_record_costs_that_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warcio.statusandheaders import StatusAndHeaders

    get_status = StatusAndHeaders.get_statuscode

    def broken(headers: StatusAndHeaders) -> str:
        if "broken" in (headers.get_header("Content-Type") or ""):
            raise AttributeError("no attribute 'unused_data'")
        return str(get_status(headers))

    monkeypatch.setattr(StatusAndHeaders, "get_statuscode", broken)
    good = html(TEXT).encode()
    path = archive(
        tmp_path,
        page("http://a/", good),
        page("http://b/", good, kind="text/broken"),
        page("http://c/", good),
    )
    rows, rejects = read(path)
    assert [row["url"] for row in rows] == ["http://a/", "http://c/"]
    assert rejects == [(2, "broken_record")]
