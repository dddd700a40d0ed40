"""A hub on loopback: as much of its API as uploading a model or a data set takes, large files through LFS."""

import base64
import hashlib
import json
from typing import Any

from tests.servers import Handler, Server

LARGE_BYTES = 10_000


class UploadHub(Server):
    """Repositories by name: whether they are private, and the files of the newest commit."""

    def __init__(self, token: str) -> None:
        super().__init__(_Handler)
        self.token = token
        self.private: dict[str, bool] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.messages: list[str] = []
        self.uploaded: dict[str, bytes] = {}  # large files by sha256
        self.missed: list[str] = []
        self.refusals: dict[str, int] = {}  # the status that answers requests whose path has a word


class _Handler(Handler):
    server: UploadHub
    protocol_version = "HTTP/1.1"

    def asked(self) -> None:
        body = self._body()
        if self.command != "PUT":
            self._handle(body)
        elif not self._refuses():
            self.server.uploaded[hashlib.sha256(body).hexdigest()] = body
            self._answer(200, {})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.sent()
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _handle(self, body: bytes) -> None:
        hub, parts = self.server, self.path.partition("?")[0].strip("/").split("/")
        if self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._answer(401, {"error": "Invalid username or password."})
            return
        if self._refuses():
            return
        match parts:
            case ["api", "repos", "create"]:
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                if name in hub.private:
                    self._answer(409, {"error": "exists", "url": f"{hub.url}/{name}"})
                    return
                hub.private[name] = (
                    asked["private"] if "private" in asked else asked["visibility"] != "public"
                )
                self._answer(200, {"url": f"{hub.url}/{name}", "name": name})
            case ["api", "validate-yaml"]:
                self._answer(200, {"errors": [], "warnings": []})
            case ["api", "models" | "datasets", owner, name]:
                private = hub.private[f"{owner}/{name}"]
                self._answer(
                    200, {"id": f"{owner}/{name}", "private": private, "sha": "0" * 40, "siblings": []}
                )
            case ["api", _, owner, name, "tree", _]:
                found = hub.files.get(f"{owner}/{name}", {})
                self._answer(200, [{"type": "file", "path": path, "size": 1, "oid": "0"} for path in found])
            case ["api", _, _, _, "preupload", _]:
                modes = [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if file["size"] > LARGE_BYTES else "regular",
                        "shouldIgnore": False,
                    }
                    for file in json.loads(body)["files"]
                ]
                self._answer(200, {"files": modes})
            case [*_, "info", "lfs", "objects", "batch"]:
                objects = [
                    {**one, "actions": {"upload": {"href": f"{hub.url}/upload/{one['oid']}"}}}
                    for one in json.loads(body)["objects"]
                ]
                self._answer(200, {"transfer": "basic", "objects": objects})
            case ["api", _, owner, name, "commit", _]:
                self._commit(f"{owner}/{name}", [json.loads(line) for line in body.splitlines()])
            case _:
                hub.missed.append(self.path)
                self._answer(404, {"error": "not found"})

    def _refuses(self) -> bool:
        status = next((status for word, status in self.server.refusals.items() if word in self.path), 0)
        if status:
            self._answer(status, {"error": "refused"})
        return status > 0

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        files = dict(self.server.files.get(name, {}))
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.server.messages.append(value["summary"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files[value["path"]] = self.server.uploaded[value["oid"]]
        self.server.files[name] = files
        self._answer(200, {"commitUrl": f"{self.server.url}/{name}/commit/1", "commitOid": "1" * 40})

    def _answer(self, status: int, value: Any) -> None:
        self.answer(status, {"Content-Type": "application/json"}, json.dumps(value).encode())
