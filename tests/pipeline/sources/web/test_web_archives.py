"""Web archives: pages as text, and what is left beside no page, a broken file or an endless page."""

import gzip
import json
import os
import re
import signal
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Timer

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("warcio", reason="needs the extra `web`")
pytest.importorskip("resiliparse", reason="needs the extra `web`")

from pipeline.sources import open_source
from pipeline.sources.documents import document_id, own_id
from pipeline.sources.source import Reason, RefusedError, Rejected
from pipeline.sources.web.pages import Extractor, PageExtractor
from pipeline.sources.web.warc import WarcConfig
from tests.corpora import CORPORA, needs_corpora
from tests.pipeline.sources import reading

CRAWL = CORPORA / "warc" / "dolma_sample-0000.warc.gz"
STORY = "<p>" + "The lighthouse keeper wrote a line in his book each night. " * 8 + "</p>"


def record(kind: str, url: str, block: bytes, **headers: str) -> bytes:
    fields = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:{url}>",
        "WARC-Date": "2024-01-01T00:00:00Z",
        "WARC-Target-URI": url,
        "Content-Length": str(len(block)),
        **headers,
    }
    return (
        b"WARC/1.0\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
        + b"\r\n"
        + block
        + b"\r\n\r\n"
    )


def page(url: str, body: bytes, status: str = "200 OK", kind: str = "text/html", **headers: str) -> bytes:
    http = {"Content-Type": kind, **headers}
    lines = (
        f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in http.items()) + "\r\n"
    )
    return record(
        "response", url, lines.encode() + body, **{"Content-Type": "application/http; msgtype=response"}
    )


def html(text: str, head: str = "") -> str:
    body = f"<main><h1>Title</h1><p>{text}</p></main>"
    return f"<html><head><title>t</title>{head}</head><body>{body}</body></html>"


read = partial(reading.read, kind=WarcConfig)


def zipped(*records: bytes) -> bytes:
    """As crawls are: one gzip member a record."""
    return b"".join(map(gzip.compress, records))


@needs_corpora
def test_a_crawl_gives_the_main_text_of_every_page() -> None:
    rows, rejects = read(CRAWL)
    assert (len(rows), rejects) == (22, [(47, "not_a_page"), (48, "not_a_page")])
    team = next(row for row in rows if row["url"] == "https://www.semanticscholar.org/research/research-team")
    assert team["text"].startswith(
        "Meet Our Team\n\nSemantic Scholar Research Team\n\nWe are an interdisciplinary research team"
    )
    assert json.loads(team["metadata"]) == {"date": "2024-04-25T16:24:44Z", "charset": "utf-8"}
    assert not [row["url"] for row in rows if "<div" in row["text"] or "function(" in row["text"]]


def article(around: str = "", body: str = "") -> str:
    """A page as blogs have it: the words of the story, and whatever is `around` them."""
    return f"""<html><head><title>t</title></head><body class="{body}"><div id="page"><div class="column">
      <article><h1>The lighthouse</h1>{STORY}</article>{around}
    </div></div></body></html>"""


EXTRACTORS = ("resiliparse", "trafilatura")
AROUND = {
    "comments": '<section class="comments"><h2>2 comments</h2><div class="comment"><p>Nice read, Reply!</p>'
    "</div></section>",
    "byline": '<div class="post-meta">Posted by Regan on May 3</div>',
    "newsletter": '<div class="box-newsletter-signup"><p>Subscribe to our mailing list</p></div>',
    "cookies": '<div id="cookieNotice"><p>This site uses cookies.</p></div>',
    "related": '<div class="you-may-like-related"><p>Ten more towers by the sea</p></div>',
    "sharing": '<div class="c-share-tools"><p>Share via Shortlink</p></div>',
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_what_stands_around_an_article_is_left_out(extractor: Extractor, around: str) -> None:
    if extractor == "trafilatura":
        pytest.importorskip("trafilatura", reason="needs the extra `web`")
    with PageExtractor(30, extractor) as pages:
        found, _ = pages.extract(article(AROUND[around]).encode(), "utf-8")
        alone, _ = pages.extract(article().encode(), "utf-8")
    assert found.split() == alone.split()
    assert alone.count("The lighthouse keeper wrote a line") == 8


def test_a_page_that_consists_of_comments_or_has_the_class_of_a_notice_keeps_its_text() -> None:
    posts = "".join(
        f'<div class="comment"><p>{n}. {"I oil mine every spring. " * 9}</p></div>' for n in range(9)
    )
    forum = f'<html><body><div><div><div class="comments">{posts}</div></div></div></body></html>'
    with PageExtractor(30) as pages:
        thread, _ = pages.extract(forum.encode(), "utf-8")
        marked, _ = pages.extract(article(body="has-cookie-notice widget-page").encode(), "utf-8")
    assert thread.count("I oil mine every spring.") == 81
    assert marked.count("The lighthouse keeper wrote a line") == 8


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_code_lists_tables_and_accents_survive(extractor: Extractor) -> None:
    if extractor == "trafilatura":
        pytest.importorskip("trafilatura", reason="needs the extra `web`")
    body = f"""<html><body><main><h1>Häfen</h1>{STORY}<ul><li>Rope</li><li>Tar</li></ul>
      <pre><code>for ship in fleet:\n    ship.moor()\n</code></pre>
      <table><tr><th>Port</th><th>Depth</th></tr><tr><td>Čapljina</td><td>12 m</td></tr></table>
    </main></body></html>"""
    with PageExtractor(30, extractor) as pages:
        text, _ = pages.extract(body.encode("utf-8"), "utf-8")
    assert [word for word in ("Rope", "Tar", "Port", "Čapljina", "12 m") if word not in text] == []
    assert "for ship in fleet:\n    ship.moor()" in text


def test_another_extractor_reads_a_crawl_again(tmp_path: Path) -> None:
    pytest.importorskip("trafilatura", reason="needs the extra `web`")
    default = WarcConfig(paths=(str(tmp_path),))
    other = open_source("c", default.model_copy(update={"extractor": "trafilatura"}))
    assert other.version == f"{open_source('c', default).version} trafilatura-{version('trafilatura')}"


@pytest.mark.parametrize(
    ("encoding", "kind", "head"),
    [
        ("iso-8859-1", "text/html; charset=ISO-8859-1", ""),
        ("windows-1251", "text/html", '<meta charset="windows-1251">'),
        ("shift_jis", 'text/html; charset="nonsense"', ""),
        ("utf-8", "text/html", ""),
    ],
)
def test_the_charset_comes_from_the_header_the_page_or_its_bytes(
    tmp_path: Path, encoding: str, kind: str, head: str
) -> None:
    said = {
        "iso-8859-1": "Crème brûlée à la façon de",
        "windows-1251": "Съешь же ещё этих мягких французских булок",
    }
    text = said.get(encoding, "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。") * 20
    (tmp_path / "a.warc").write_bytes(page("http://a/", html(text, head).encode(encoding), kind=kind))
    rows, rejects = read(tmp_path / "a.warc")
    assert rejects == []
    assert text in rows[0]["text"]


def test_texts_of_a_wet_file_arrive_as_they_are_under_their_records_ids(tmp_path: Path) -> None:
    wet = zipped(
        record("warcinfo", "x", b"software: y"),
        record("conversion", "http://a/", "Zwölf Boxkämpfer\n".encode()),
        record("conversion", "http://b/", b"\xff"),
    )
    (tmp_path / "a.warc.wet.gz").write_bytes(wet)
    rows, rejects = read(tmp_path / "*.wet.gz")
    assert [(row["id"], row["text"], row["url"]) for row in rows] == [
        (document_id("c", own_id("urn:uuid:http://a/")), "Zwölf Boxkämpfer\n", "http://a/")
    ]
    assert rejects == [(3, "invalid_utf8")]


def test_what_is_no_page_is_counted_and_its_neighbors_arrive(tmp_path: Path) -> None:
    good = page("http://good/", html(STORY).encode())
    unzipped = gzip.compress(html(STORY).encode())
    (tmp_path / "a.warc.gz").write_bytes(
        zipped(
            page("http://gone/", html(STORY).encode(), status="404 Not Found"),
            page("http://image/", b"\x89PNG", kind="image/png"),
            record("request", "http://good/", b"GET / HTTP/1.1\r\n\r\n"),
            page("http://zipped/", unzipped, **{"Content-Encoding": "gzip"}),
            page("http://empty/", b"<html><body></body></html>"),
            good,
        )
    )
    rows, rejects = read(tmp_path / "a.warc.gz")
    assert [row["url"] for row in rows] == ["http://zipped/", "http://good/"]
    assert rejects == [(1, "not_a_page"), (2, "not_a_page"), (5, "empty_text")]


def test_records_of_other_kinds_are_counted_unless_they_are_about_the_crawl(tmp_path: Path) -> None:
    kinds = ("warcinfo", "request", "metadata", "resource", "revisit", "continuation", "response")
    records = [record(kind, f"http://{kind}/", b"content") for kind in kinds]
    (tmp_path / "a.warc.gz").write_bytes(zipped(*records, page("http://good/", html(STORY).encode())))
    rows, rejects = read(tmp_path / "a.warc.gz")
    assert [row["url"] for row in rows] == ["http://good/"]
    assert rejects == [(number, "not_a_page") for number in (4, 5, 6, 7)]


def test_of_a_truncated_crawl_what_comes_before_the_break_arrives_and_the_break_is_named(
    tmp_path: Path,
) -> None:
    pages = [page(f"http://{n}/", html(f"{n} {STORY}").encode()) for n in range(5)]
    (tmp_path / "a.warc.gz").write_bytes(zipped(*pages)[:-40])
    rows, rejects = read(tmp_path / "a.warc.gz")
    assert [row["url"] for row in rows] == [f"http://{n}/" for n in range(4)]
    assert rejects == [(None, "broken_compression")]
    (tmp_path / "b.warc").write_bytes(b"".join(pages)[:-400])
    rows, rejects = read(tmp_path / "b.warc")
    assert ([row["url"] for row in rows], rejects) == (
        [f"http://{n}/" for n in range(4)],
        [(5, "broken_record")],
    )


def test_of_a_crawl_no_page_of_a_damaged_member_arrives(tmp_path: Path) -> None:
    members = [gzip.compress(page(f"http://{n}/", html(f"{n} {STORY}").encode())) for n in range(5)]
    whole, start = b"".join(members), len(b"".join(members[:3]))
    for place in range(start + 12, start + len(members[3]), 7):
        (tmp_path / "a.warc.gz").write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        rows, rejects = read(tmp_path / "a.warc.gz")
        assert [row["url"] for row in rows] == [f"http://{n}/" for n in range(3)]
        assert rejects == [(None, "broken_compression")]


def test_what_is_passed_over_between_records_counts_as_lost(tmp_path: Path) -> None:
    pages = [page(f"http://{n}/", html(f"{n} {STORY * 50}").encode()) for n in range(20)]
    content = b"".join(pages[:10]) + b"no record\r\n" * 12_000 + b"".join(pages[10:])
    (tmp_path / "a.warc").write_bytes(content)
    source, rejects = open_source("c", WarcConfig(paths=(str(tmp_path / "a.warc"),))), list[Rejected]()
    found = sum(batch.num_rows for unit in source.units() for batch in source.read(unit, rejects))
    assert (found, [str(reject.reason) for reject in rejects]) == (20, ["broken_record"])
    assert rejects[0].lost_bytes == 12_000 * len(b"no record\r\n")


@pytest.mark.parametrize(("extractor", "seconds"), [("resiliparse", 0.25), ("trafilatura", 1)])
def test_a_page_that_takes_too_long_is_named_and_the_next_one_arrives(
    tmp_path: Path, extractor: Extractor, seconds: float
) -> None:
    if extractor == "trafilatura":
        pytest.importorskip("trafilatura", reason="needs the extra `web`")
    endless = html("<p>word <b>word</b> " * 700_000).encode()
    (tmp_path / "a.warc").write_bytes(
        page("http://endless/", endless) + page("http://good/", html(STORY).encode())
    )
    rows, rejects = read(tmp_path / "a.warc", page_seconds=seconds, extractor=extractor)
    assert ([row["url"] for row in rows], rejects) == (["http://good/"], [(1, "page_took_too_long")])


def test_a_page_is_not_lost_because_the_machine_was_busy() -> None:
    long = html(STORY + "<math>" * 4_000).encode()
    with PageExtractor(seconds=2) as extractor:
        extractor.extract(html(STORY).encode(), "")
        assert extractor._worker is not None
        worker = extractor._worker.pid
        paused, goes_on = (
            Timer(seconds, os.kill, (worker, number))
            for seconds, number in ((0.1, signal.SIGSTOP), (2.5, signal.SIGCONT))
        )
        paused.start()
        goes_on.start()
        extractor.extract(long, "")
        goes_on.join()


def test_a_page_that_brings_the_extraction_down_costs_that_page_only() -> None:
    with PageExtractor(seconds=2) as extractor:
        assert extractor._worker is None
        assert extractor.extract(html(STORY).encode(), "")[0]
        assert extractor._worker is not None
        extractor._worker.kill()
        with pytest.raises(RefusedError, match="the extraction ended with SIGKILL") as refused:
            extractor.extract(html(STORY).encode(), "")
        assert refused.value.reason == Reason.PAGE_BROKE_EXTRACTION
        assert extractor.extract(html(STORY).encode(), "")[0]
        try:
            extractor.extract(b"<div>" * 1_000_000, "")
        except RefusedError as error:
            assert error.reason in (Reason.PAGE_BROKE_EXTRACTION, Reason.PAGE_TOOK_TOO_LONG)
        assert extractor.extract(html(STORY).encode(), "")[0]


def test_max_documents_of_a_crawl(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(
        b"".join(page(f"http://{n}/", html(f"{n} {STORY}").encode()) for n in range(5))
    )
    assert len(read(tmp_path / "a.warc", max_documents=2)[0]) == 2


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(
            [b"", b"\r\n\r\n", b"junk\r\n", b"junk: 1\n\nmore\n\n", bytes(512), bytes(range(256)), b"</p>"]
        ),
        min_size=4,
        max_size=4,
    ),
    st.sampled_from([b"\r\n", b"\n"]),
    st.booleans(),
)
def test_bytes_that_belong_to_no_record_cost_no_record(
    tmp_path: Path, between: list[bytes], line_end: bytes, packed: bool
) -> None:
    records = [page(f"http://a.org/{n}", html(STORY).encode()) for n in range(3)]
    heads = [one.partition(b"\r\n\r\n") for one in records]
    records = [
        head.replace(b"\r\n", line_end) + 2 * line_end + body[:-4] + 2 * line_end for head, _, body in heads
    ]
    pieces = [between[0], *(piece for pair in zip(records, between[1:], strict=True) for piece in pair)]
    path = tmp_path / ("a.warc.gz" if packed else "a.warc")
    path.write_bytes(zipped(*pieces) if packed else b"".join(pieces))
    rows, rejects = read(path)
    assert [row["url"] for row in rows] == ["http://a.org/0", "http://a.org/1", "http://a.org/2"]
    assert all(row["text"] == rows[0]["text"] for row in rows)
    assert rejects == [(n, "broken_record") for n, piece in enumerate(between, start=1) if piece.strip()]


@pytest.mark.parametrize("length", [b"X-Length: 1", b"Content-Length: many", b"Content-Length: 20"])
def test_a_record_of_no_or_a_wrong_length_costs_itself_alone(tmp_path: Path, length: bytes) -> None:
    records = [page(f"http://a.org/{n}", html(STORY).encode()) for n in range(3)]
    broken = re.sub(rb"Content-Length: \d+", length, records[1], count=1)
    (tmp_path / "a.warc").write_bytes(records[0] + broken + records[2])
    rows, rejects = read(tmp_path / "a.warc")
    assert [row["url"] for row in rows] == ["http://a.org/0", "http://a.org/2"]
    assert {number for number, _ in rejects} <= {2, 3} and rejects[-1] == (3, "broken_record")


@pytest.mark.parametrize("kind", ["response", "request", "metadata"])
@pytest.mark.parametrize("more", [10, 40, 280, 700, 1_500, 100_000, 1 << 40])
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
def test_a_record_with_too_large_a_length_takes_no_other_record_with_it(
    tmp_path: Path, kind: str, more: int, line_end: bytes
) -> None:
    records = [page(f"http://a.org/{n}", html(STORY).encode()) for n in range(5)]
    size = re.search(rb"Content-Length: (\d+)", records[1])
    assert size
    records[1] = records[1].replace(size[0], b"Content-Length: %d" % (int(size[1]) + more))
    records[1] = records[1].replace(b"WARC-Type: response", b"WARC-Type: " + kind.encode())
    if line_end == b"\n":  # the separators between records; the lengths stay
        records = [one[:-4] + b"\n\n" for one in records]
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    rows, rejects = read(tmp_path / "a.warc")
    assert [row["url"] for row in rows] == [f"http://a.org/{n}" for n in (0, 2, 3, 4)]
    assert rejects == [(2, "broken_record")]


def test_a_page_that_shows_records_of_a_web_archive_is_a_page(tmp_path: Path) -> None:
    shown = b"An archive:\r\n\r\n" + page("http://b.org/", STORY.encode())
    records = [page(f"http://a.org/{n}", shown, kind="text/plain") for n in range(3)]
    for after in (b"", b"\r\n", records[0].replace(b"a.org/0", b"a.org/9")):
        (tmp_path / "a.warc").write_bytes(b"".join(records) + after)
        rows, rejects = read(tmp_path / "a.warc")
        assert [row["text"] for row in rows[:3]] == [shown.decode()] * 3
        assert rejects == []
