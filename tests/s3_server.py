"""An S3 server on this machine in a process of its own, and a proxy before it whose network is bad."""

import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from typing import Any, Protocol, TypeVar

import pytest

from tests import servers
from tests.integration.project import until

CREDENTIALS = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "geheim", "DEFAULT_REGION": "us-east-1"}
SERVER = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"
BUCKET = "bucket"
Answer = tuple[int, list[tuple[str, str]], bytes]


class CloudServer(Protocol):
    """A server of one of the clouds. `scheme` begins its addresses."""

    @property
    def endpoint(self) -> str: ...
    @property
    def scheme(self) -> str: ...
    @property
    def environment(self) -> dict[str, str]: ...
    def keys(self, prefix: str = "") -> list[str]: ...


Server = TypeVar("Server", bound=CloudServer)


def objects_of(server: CloudServer) -> Any:
    """The bucket of a server, as the library opens it."""
    from obstore import store

    opened = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}[server.scheme]
    options: Any = {"config": server.environment, "client_options": {"allow_http": True}}
    return opened(BUCKET, **options)


@dataclass(frozen=True)
class S3:
    """`endpoint`: its address. There is one bucket."""

    endpoint: str
    scheme: str = "s3"

    @property
    def environment(self) -> dict[str, str]:
        settings = CREDENTIALS | {"ENDPOINT_URL": self.endpoint}
        return {f"AWS_{name}": value for name, value in settings.items()}

    @property
    def client(self) -> Any:
        from botocore.session import get_session

        return get_session().create_client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="geheim",
        )

    def keys(self, prefix: str = "") -> list[str]:
        return list(self.written(prefix))

    def written(self, prefix: str = "") -> dict[str, Any]:
        """When each key was last written."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return {found["Key"]: found["LastModified"] for page in pages for found in page.get("Contents", ())}

    def unfinished(self) -> int:
        return len(self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()))


@contextmanager
def listening(*command: str) -> Iterator[str]:
    """The address of a server, once it answers. Its `command` takes a port as the last argument."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*command, str(port)], stdout=quiet, stderr=quiet)

    def answers() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        until(answers, 60)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def serving() -> Iterator[S3]:
    pytest.importorskip("botocore", reason="needs the extra `s3`")
    pytest.importorskip("moto.server", reason="needs moto's server (pip install 'moto[server]')")
    with listening(sys.executable, "-c", SERVER) as endpoint:
        server = S3(endpoint)
        server.client.create_bucket(Bucket=BUCKET)
        yield server


@dataclass
class Proxy:
    """Passes requests on after `latency` seconds. `share` of them goes wrong in one of the `ways`:
    500, 503, a connection that is cut before the answer or in the middle of it, a pause of two seconds, and
    `old`: the first answer that was ever given. `faults`: the way and the path of each.

    `differs` gets method, path and headers of each request; it may remove headers, or return what another
    server would answer: status, headers and content.
    """

    target: str
    latency: float = 0.0
    share: float = 0.0
    ways: tuple[str, ...] = ("500", "503", "reset", "half", "slow")
    requests: int = 0
    faults: list[tuple[str, str]] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=lambda: {"PUT": 0, "GET": 0})
    first: dict[tuple[str, str], Any] = field(default_factory=dict)
    seed: int = 1
    differs: Callable[[str, str, dict[str, str]], Answer | None] = lambda *_: None
    methods: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def way(self, path: str) -> str:
        self.requests += 1
        if self._random.random() >= self.share:
            return ""
        way = self._random.choice(self.ways)
        self.faults.append((way, path))
        return way


@contextmanager
def proxied(target: Server, **settings: Any) -> Iterator[tuple[Server, Proxy]]:
    proxy = Proxy(target.endpoint.removeprefix("http://"), **settings)

    class PassingOn(servers.Handler):
        protocol_version = "HTTP/1.1"

        def asked(self) -> None:
            sent = self.sent()
            way = proxy.way(self.path)
            proxy.methods[self.command] += 1
            headers = dict(self.headers)
            if other := proxy.differs(self.command, self.path, headers):
                status, others, content = other
                self.answer(status, dict(others), content)
                return
            time.sleep(2.0 if way == "slow" else proxy.latency)
            if way in ("500", "503"):
                self.answer(int(way), [], b"")
                return
            if way == "reset":
                self.close_connection = True
                self.connection.close()
                return
            connection = HTTPConnection(proxy.target)
            connection.request(self.command, self.path, sent, headers)
            answer = connection.getresponse()
            content = answer.read()
            proxy.moved["PUT"] += len(sent)
            proxy.moved["GET"] += len(content)
            answered = answer.status, answer.getheaders(), content
            if self.command in ("GET", "HEAD"):
                first = proxy.first.setdefault((self.command, self.path), answered)
                answered = first if way == "old" else answered
            self.pass_back(*answered, half=way == "half" and len(content) > 1)
            connection.close()

        def pass_back(self, status: int, headers: Any, content: bytes, half: bool = False) -> None:
            self.send_response(status)
            named = [name.lower() for name, _ in headers]
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "connection", "server", "date"):
                    self.send_header(name, value)
            if "content-length" not in named:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if half else content)
            if half:
                self.close_connection = True

    with servers.serving(servers.Server(PassingOn)) as server:
        yield replace(target, endpoint=server.url), proxy


def use(server: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process knows the server."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
