"""Servers of this process, for tests of what asks them."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar


class Server(ThreadingHTTPServer):
    """On a free port of this machine. It is silent, also when a client is cut off."""

    daemon_threads = True

    def __init__(self, handler: type["Handler"]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Silent."""


class Handler(BaseHTTPRequestHandler):
    """`asked` answers a request of any kind, which `command` names."""

    server: Any

    def asked(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.asked()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def sent(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def answer(self, status: int, headers: Mapping[str, str] | None = None, content: bytes = b"") -> None:
        """The content is not sent where only its headers are asked for."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Silent."""


AnyServer = TypeVar("AnyServer", bound=Server)


@contextmanager
def serving(server: AnyServer) -> Iterator[AnyServer]:
    """A server that answers in a thread of its own, which looks 50 times a second whether it is to end."""
    with server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
