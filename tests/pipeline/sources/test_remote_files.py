"""Files behind URLs: documents as from disk, versions from what the store says, broken connections."""

import base64
import gzip
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFile

from pipeline.sources import open_source, source_file
from pipeline.sources.files import FilesConfig
from pipeline.sources.formats import compression
from pipeline.sources.source import SourceError
from tests.pipeline.sources.reading import documents_and_rejects
from tests.servers import Handler, Server, serving


def source(*paths: str, **config: Any) -> Any:
    return open_source("c", FilesConfig(paths=paths, **config))


@pytest.fixture
def bucket() -> Iterator[Any]:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield memory
    memory.store.clear()


def test_every_format_is_read_from_an_object_store_under_names_without_it(bucket: Any) -> None:
    lines = b'{"text": "one"}\n{"text": "two"}\n'
    bucket.pipe("/corpus/a/plain.jsonl", lines)
    bucket.pipe("/corpus/b/packed.jsonl.zst", pa.Codec("zstd").compress(lines).to_pybytes())
    bucket.pipe("/corpus/table.csv", b"text\none\ntwo\n")
    bucket.pipe("/corpus/picture.png", b"x")
    with bucket.open("/corpus/table.parquet", "wb") as file:
        pq.write_table(pa.table({"text": ["one", "two"]}), file)
    rows, rejects = documents_and_rejects("memory://corpus/**")
    assert [(reject.file, str(reject.reason)) for reject in rejects] == [
        ("picture.png", "unsupported_format")
    ]
    assert [(row["source"], row["text"]) for row in rows] == [
        (name, text)
        for name in ("a/plain.jsonl", "b/packed.jsonl.zst", "table.csv", "table.parquet")
        for text in ("one", "two")
    ]
    assert [
        row["text"] for row in documents_and_rejects("memory://corpus/a/plain.jsonl", max_documents=1)[0]
    ] == ["one"]


def test_parquet_of_an_object_store_is_read_on_no_other_thread(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of Arrow that still holds the file when Python ends aborts a process whose work is done."""
    with bucket.open("/corpus/table.parquet", "wb") as file:
        pq.write_table(pa.table({"text": ["one", "two"] * 1000, "n": range(2000)}), file, row_group_size=500)
    threads = []

    def read(file: io.BytesIO, *size: int) -> bytes:
        threads.append(threading.current_thread())
        return io.BytesIO.read(file, *size)

    monkeypatch.setattr(MemoryFile, "read", read, raising=False)
    assert len(documents_and_rejects("memory://corpus/**")[0]) == 2000
    assert set(threads) == {threading.current_thread()}


def test_a_file_written_again_is_another_version_and_its_neighbor_is_not(bucket: Any) -> None:
    for name in ("a", "b"):
        bucket.pipe(f"/corpus/{name}.txt", b"text")
    before = {unit.name: unit.fingerprint for unit in source("memory://corpus/*.txt").units()}
    bucket.pipe("/corpus/a.txt", b"news")
    after = {unit.name: unit.fingerprint for unit in source("memory://corpus/*.txt").units()}
    assert [name for name in before if before[name] != after[name]] == ["a.txt"]


def test_what_is_not_there_or_cannot_be_reached_is_one_clear_error(bucket: Any) -> None:
    with pytest.raises(SourceError, match=r"no file matches 'memory://corpus/\*.jsonl'"):
        source("memory://corpus/*.jsonl").units()
    with pytest.raises(SourceError, match=r"nowhere://a cannot be listed: ValueError: Protocol not known"):
        source("nowhere://a").units()


class _Server(Server):
    content = b""
    later = b""  # what the file holds after `before_breaks` answers
    breaks = 0
    before_breaks = 0
    asked = 0
    refusals: tuple[int, ...] = ()  # with which status the next requests are answered
    login = ""  # what a request must bring, `NAME:PASSWORD`
    ranges = True
    sized = True
    encoding = ""


class _Handler(Handler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def asked(self) -> None:
        server = self.server
        if server.refusals:
            status, *server.refusals = server.refusals
            self.answer(status, {"Retry-After": "1"})
            return
        brought = self.headers.get("Authorization", "").removeprefix("Basic ")
        if server.login and base64.b64decode(brought).decode() != server.login:
            self.answer(401, {"WWW-Authenticate": 'Basic realm="texts"'})
            return
        changed = server.later and server.asked >= server.before_breaks
        content = server.later if changed else server.content
        asked = self.headers.get("Range") if server.ranges else None
        first, _, last = (asked or "bytes=0-").removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last or len(content)) + 1]
        self.send_response((206 if part else 416) if asked else 200)
        headers = {"ETag": f'"{hash(content)}"', "Content-Encoding": server.encoding}
        if server.sized:
            headers["Content-Length"] = str(len(part))
        else:
            headers["Transfer-Encoding"] = "chunked"
        if asked:
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        server.asked += 1
        if server.breaks and (asked or not server.ranges) and server.asked > server.before_breaks:
            server.breaks -= 1
            self._send(part[: len(part) // 2])
            self.close_connection = True
            return
        self._send(part)
        if not server.sized:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, part: bytes) -> None:
        self.wfile.write(part if self.server.sized else f"{len(part):x}\r\n".encode() + part + b"\r\n")


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    pytest.importorskip("aiohttp", reason="needs the extra `web`")
    monkeypatch.setattr(source_file, "FIRST_WAIT_SECONDS", 0.01)
    with serving(_Server(_Handler)) as server:
        server.content = b"".join(
            json.dumps({"text": f"{n} " + "word " * 200}).encode() + b"\n" for n in range(2000)
        )
        yield server


@pytest.mark.parametrize("before", [0, 3])
def test_a_download_that_breaks_off_goes_on_and_no_document_is_lost_or_doubled(
    web: _Server, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    url = f"{web.url}/a.jsonl"
    monkeypatch.setattr(source_file, "REMOTE_BLOCK_BYTES", len(web.content) // 8)
    web.before_breaks, web.breaks = before, 3
    rows, rejects = documents_and_rejects(url)
    assert rejects == []
    assert [int(row["text"].split()[0]) for row in rows] == list(range(2000))
    assert web.breaks == 0


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_server_without_ranges_is_read_also_when_a_download_breaks_off(
    web: _Server, monkeypatch: pytest.MonkeyPatch, sized: bool, name: str
) -> None:
    """Large members of a compressed file are read twice."""
    monkeypatch.setattr(source_file, "REMOTE_BLOCK_BYTES", len(web.content) // 8)
    monkeypatch.setattr(compression, "HELD_BYTES", len(web.content) // 8)
    web.ranges, web.sized, web.breaks, web.before_breaks = False, sized, 2, 2
    if name.endswith(".gz"):
        web.content, web.encoding = gzip.compress(web.content), "gzip"
    rows, rejects = documents_and_rejects(f"{web.url}/{name}")
    assert rejects == []
    assert [int(row["text"].split()[0]) for row in rows] == list(range(2000))
    assert web.breaks == 0


@pytest.mark.parametrize("before", [1, 4, 8])
@pytest.mark.parametrize("size", [1.0, 0.3, 0.0001])
def test_a_file_that_changes_between_two_ranges_is_never_read_as_one(
    web: _Server, monkeypatch: pytest.MonkeyPatch, before: int, size: float
) -> None:
    monkeypatch.setattr(source_file, "REMOTE_BLOCK_BYTES", len(web.content) // 8)
    monkeypatch.setattr(source_file, "FIRST_WAIT_SECONDS", 0)
    web.later, web.before_breaks = (
        web.content.replace(b"word", b"news")[: int(size * len(web.content))],
        before,
    )
    with pytest.raises(SourceError, match=r"changed while it was read|broke off at byte"):
        documents_and_rejects(f"{web.url}/a.jsonl")


def test_a_busy_server_is_asked_again_when_it_says_and_a_refusal_is_not_a_missing_file(web: _Server) -> None:
    url = f"{web.url}/a.jsonl"
    web.refusals, began = (503, 503, 429), time.monotonic()  # fsspec asks twice each time
    assert len(documents_and_rejects(url)[0]) == 2000
    assert time.monotonic() - began > 1
    for status, answer in ((403, "403"), (401, "401"), (404, "no file matches")):
        web.refusals = (status, status)
        with pytest.raises(SourceError, match=answer):
            documents_and_rejects(url)
        assert list(web.refusals) == []
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(SourceError, match=r"a\.jsonl cannot be listed: ClientConnectorError"):
        documents_and_rejects(f"http://127.0.0.1:{port}/a.jsonl")


def test_a_server_that_asks_for_a_password_is_told_with_the_file_that_the_password_stands_in(
    web: _Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, web.login = f"{web.url}/a.jsonl", "ada:s3cret"
    netrc = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(netrc))
    for password in ("", "wr0ng", "s3cret"):
        netrc.write_text(f"machine 127.0.0.1 login ada password {password}\n" if password else "")
        if f"ada:{password}" == web.login:
            assert len(documents_and_rejects(url)[0]) == 2000
            continue
        with pytest.raises(SourceError, match=r"401.*stand in ~/\.netrc") as refused:
            documents_and_rejects(url)
        assert "wr0ng" not in str(refused.value)


def test_a_signed_url_is_read_and_no_error_tells_its_signature(web: _Server, bucket: Any) -> None:
    url = f"{web.url}/a.jsonl?sp=r&sig=SECRET"
    assert len(documents_and_rejects(url)[0]) == 2000
    web.breaks = 1000
    missing, unknown = "memory://corpus/b.jsonl?sig=SECRET", "nowhere://b.jsonl?sig=SECRET"
    for place, reason in (
        (url, r"broke off at byte 0"),
        (missing, "no file matches"),
        (unknown, "cannot be listed"),
    ):
        with pytest.raises(
            SourceError, match=rf"[ab]\.jsonl\?\.\.\..*{reason}|{reason}.*[ab]\.jsonl\?\.\.\."
        ) as caught:
            documents_and_rejects(place)
        assert "SECRET" not in str(caught.value)


def test_a_server_that_always_breaks_off_ends_the_reading_with_an_error_and_sets_nothing_aside(
    web: _Server,
) -> None:
    web.breaks = 1000
    with pytest.raises(SourceError, match=r"a\.jsonl broke off at byte 0; run again to resume"):
        documents_and_rejects(f"{web.url}/a.jsonl")
