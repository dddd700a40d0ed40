"""A hub on loopback: as much of its API as reading a data set, or the files of a model, takes."""

import hashlib
import io
import json
from itertools import count
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tests.servers import Handler, Server

LARGE_BYTES = 500_000
CARD = b"""---
configs:
- config_name: plain
  data_files:
  - split: train
    path: data/train-*
  - split: test
    path: data/test-*
---
"""


def parquet(compression: str = "snappy", **columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression=compression)
    return sink.getvalue()


def row_groups(*tables: pa.Table) -> bytes:
    """A Parquet file with a row group for each table."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue()


class Hub(Server):
    """The repository org/set: `files` by commit, the newest commit last."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self._names = (f"{number:040x}" for number in count(1))
        self.begin()

    def begin(self) -> None:
        """Forgets everything. `commits`: two names for commits, which were not used before."""
        self.commits = (next(self._names), next(self._names))
        self.files: dict[str, dict[str, bytes]] = {}
        self.token: str | None = None
        self.gated_files_only = False  # as the hub has it: anybody may read what the files are called
        self.tokens_seen: set[str | None] = set()
        self.missed: list[str] = []
        self.asked: list[str] = []
        self.breaks = 0
        self.busy: dict[int, int] = {}  # the status of an answer, by the number of the request

    def commit(self, revision: str) -> str | None:
        return list(self.files)[-1] if revision == "main" else revision if revision in self.files else None


class _Handler(Handler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def asked(self) -> None:
        sent = self.sent().decode()
        given = self.headers.get("Authorization")
        self.server.tokens_seen.add(given)
        path = unquote(urlsplit(self.path).path)
        if self.server.token and given != f"Bearer {self.server.token}":
            if given is not None:
                self._send(401, b"", {"X-Error-Message": "Invalid credentials in Authorization header"})
                return
            if not (self.server.gated_files_only and path.startswith("/api/")):
                self._send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
                return
        self.server.asked.append(path)
        if status := self.server.busy.get(len(self.server.asked)):
            self._send(status, b"", {"Retry-After": "0"})
            return
        parts = path.strip("/").split("/")
        if parts[0] == "api" and parts[2:4] == ["org", "set"]:
            kind, revision, inside = (
                [*parts[4:], "info", "main"][0],
                (parts[5] if len(parts) > 5 else "main"),
                "/".join(parts[6:]),
            )
            self._api(kind, self.server.commit(revision), inside, parse_qs(sent).get("paths", []))
        elif parts[-5:-2] == ["org", "set", "resolve"] or parts[:4] == ["datasets", "org", "set", "resolve"]:
            inside = parts[parts.index("resolve") + 1 :]
            commit = self.server.commit(inside[0])
            self._file(commit, self.server.files.get(commit or "", {}).get("/".join(inside[1:])))
        else:
            self.server.missed.append(path)
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _api(self, kind: str, commit: str | None, inside: str, asked: list[str]) -> None:
        if commit is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return
        files = self.server.files[commit]
        if kind in ("info", "revision"):
            siblings = [{"rfilename": path} for path in files]
            self._json(
                {
                    "id": "org/set",
                    "sha": commit,
                    "siblings": siblings,
                    "tags": [],
                    "private": False,
                    "downloads": 0,
                    "likes": 0,
                }
            )
            return
        folders = {
            "/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)
        }
        entries = [
            {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for path, data in files.items()
        ]
        entries += [{"type": "directory", "path": path, "oid": "0" * 40} for path in sorted(folders)]
        if kind == "paths-info":
            self._json([entry for entry in entries if entry["path"] in asked])
        elif inside and inside not in folders:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self._json(
                [entry for entry in entries if str(entry["path"]).startswith(f"{inside}/" if inside else "")]
            )

    def _file(self, commit: str | None, data: bytes | None) -> None:
        if data is None or commit is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        headers = {
            "X-Repo-Commit": commit,
            "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
            "Accept-Ranges": "bytes",
        }
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            end = min(int(last or len(data)), len(data) - 1)
            self._send(
                206,
                data[int(first) : end + 1],
                {**headers, "Content-Range": f"bytes {first}-{end}/{len(data)}"},
            )
        else:
            self._send(200, data, headers)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        sent = data
        if self.server.breaks and len(data) > LARGE_BYTES and self.command != "HEAD":
            self.server.breaks -= 1
            self.close_connection = True
            sent = data[: len(data) // 2]
        self.answer(status, {**headers, "Content-Length": str(len(data))}, sent)
