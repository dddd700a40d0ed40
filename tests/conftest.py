"""How the tests are shared out among processes (`pytest -n 2 --dist loadgroup`), and what several use."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together, for the sake of their fixtures; those of the finished project, which
    takes a minute to make, across files.
    """
    for item in items:
        group = (
            "finished" if "finished" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]
        )
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that keeps what it is sent; /refuse answers 500."""
    received: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path.startswith("/refuse") else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
