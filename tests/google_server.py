"""Google Cloud Storage on this machine, in memory: the requests of its XML interface that a store was seen to
make. It is ours, since no server that can be installed has conditional puts by that interface, and nothing
compares it with Google's own.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.s3_server import BUCKET
from tests.servers import Handler, Server, serving

VERSIONED = "versioned"  # the bucket that keeps what is replaced or removed
MATCH = "x-goog-if-generation-match"
META = "x-goog-meta-"
PAGE = 5  # keys of a listing


@dataclass(frozen=True)
class Object:
    content: bytes
    meta: dict[str, str]
    generation: str
    modified: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.content, usedforsecurity=False).hexdigest()}"'

    @property
    def headers(self) -> dict[str, str]:
        told = {"ETag": self.etag, "x-goog-generation": self.generation, "Last-Modified": self.modified}
        return {**told, **self.meta}


@dataclass(frozen=True)
class Google:
    """`endpoint`: its address. There are two buckets; `objects` by bucket and key."""

    endpoint: str
    objects: dict[tuple[str, str], Object]
    uploads: dict[str, dict[int, bytes]]
    scheme: str = "gs"

    @property
    def environment(self) -> dict[str, str]:
        account = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        return {"GOOGLE_BASE_URL": self.endpoint, "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(key for bucket, key in self.objects if bucket == BUCKET and key.startswith(prefix))

    def unfinished(self) -> int:
        return len(self.uploads)


@dataclass
class State:
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    old: dict[tuple[str, str, str], Object] = field(default_factory=dict)  # by generation, too
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    meta: dict[str, dict[str, str]] = field(default_factory=dict)  # of uploads
    generations: Iterator[int] = field(default_factory=lambda: count(1_000_001))
    lock: Any = field(default_factory=threading.Lock)

    def put(self, where: tuple[str, str], content: bytes, meta: dict[str, str]) -> Object:
        self.retire(where)
        made = Object(content, meta, str(next(self.generations)), formatdate(usegmt=True))
        self.objects[where] = made
        return made

    def retire(self, where: tuple[str, str]) -> bool:
        there = self.objects.pop(where, None)
        if there and where[0] == VERSIONED:
            self.old[(*where, there.generation)] = there
        return there is not None


@contextmanager
def google() -> Iterator[Google]:
    state = State()

    class Requests(Handler):
        protocol_version = "HTTP/1.1"

        def asked(self) -> None:
            sent = self.sent()
            asked = urlsplit(self.path)
            bucket, _, key = unquote(asked.path).lstrip("/").partition("/")
            query = dict(parse_qsl(asked.query, keep_blank_values=True))
            with state.lock:
                if bucket not in (BUCKET, VERSIONED):
                    self.error(404, "NoSuchBucket")
                else:
                    getattr(self, f"on_{self.command.lower()}")((bucket, key), query, sent)

        def on_put(self, where: tuple[str, str], query: dict[str, str], sent: bytes) -> None:
            there, match = state.objects.get(where), self.headers.get(MATCH)
            if "uploadId" in query:
                state.uploads[query["uploadId"]][int(query["partNumber"])] = sent
                self.answer(200, {"ETag": f'"{query["partNumber"]}"'})
            elif match is not None and match != (there.generation if there else "0"):
                self.error(412, "PreconditionFailed")
            elif source := self.headers.get("x-goog-copy-source"):
                bucket, _, key = unquote(source).lstrip("/").partition("/")
                if found := state.objects.get((bucket, key)):
                    self.answer(
                        200, state.put(where, found.content, found.meta).headers, b"<CopyObjectResult/>"
                    )
                else:
                    self.error(404, "NoSuchKey")
            else:
                self.answer(200, state.put(where, sent, self.meta()).headers)

        def on_post(self, where: tuple[str, str], query: dict[str, str], _: bytes) -> None:
            if "uploads" in query:
                upload = str(next(state.generations))
                state.uploads[upload] = {}
                state.meta[upload] = self.meta()
                answer, named = "InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>"
                self.answer(200, {}, f"<{answer}>{named}</{answer}>".encode())
                return
            parts = state.uploads.pop(query["uploadId"])
            content = b"".join(parts[number] for number in sorted(parts))
            made = state.put(where, content, state.meta[query["uploadId"]])
            body = f"<CompleteMultipartUploadResult><ETag>{made.etag}</ETag></CompleteMultipartUploadResult>"
            self.answer(200, made.headers, body.encode())

        def on_get(self, where: tuple[str, str], query: dict[str, str], _: bytes) -> None:
            if not where[1]:
                self.listing(where[0], query)
                return
            found = state.objects.get(where)
            if (generation := query.get("generation")) and (not found or found.generation != generation):
                found = state.old.get((*where, generation))
            if found is None:
                self.error(404, "NoSuchKey")
                return
            first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            if not first:
                self.answer(200, found.headers, found.content)
                return
            size = len(found.content)
            end = min(int(last or size - 1) + 1, size)
            extent = {"Content-Range": f"bytes {first}-{end - 1}/{size}"}
            self.answer(206, {**found.headers, **extent}, found.content[int(first) : end])

        on_head = on_get

        def on_delete(self, where: tuple[str, str], query: dict[str, str], _: bytes) -> None:
            if "uploadId" in query:
                state.uploads.pop(query["uploadId"], None)
                self.answer(204, {})
            elif state.retire(where):
                self.answer(204, {})
            else:
                self.error(404, "NoSuchKey")

        def listing(self, bucket: str, query: dict[str, str]) -> None:
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
            after = query.get("continuation-token") or query.get("start-after", "")
            found: dict[str, str] = {}
            for name, key in sorted(state.objects):
                if name != bucket or not key.startswith(prefix):
                    continue
                below, slash, _ = key.removeprefix(prefix).partition(delimiter or "\0")
                entry = prefix + below + slash
                one = state.objects[(name, key)]
                found[entry] = (
                    f"<CommonPrefixes><Prefix>{escape(entry)}</Prefix></CommonPrefixes>"
                    if slash
                    else f"<Contents><Key>{escape(key)}</Key><ETag>{escape(one.etag)}</ETag>"
                    f"<Size>{len(one.content)}</Size><LastModified>2026-11-26T00:00:00.000Z</LastModified></Contents>"
                )
            names = [entry for entry in found if entry > after]
            token = names[PAGE - 1] if len(names) > PAGE else ""
            more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
            entries = "".join(found[entry] for entry in names[:PAGE])
            self.answer(200, {}, f"<ListBucketResult>{entries}{more}</ListBucketResult>".encode())

        def meta(self) -> dict[str, str]:
            return {name: value for name, value in self.headers.items() if name.startswith(META)}

        def error(self, status: int, code: str) -> None:
            self.answer(status, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    with serving(Server(Requests)) as server:
        yield Google(server.url, state.objects, state.uploads)
