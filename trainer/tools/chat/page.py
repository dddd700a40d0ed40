"""A page on 127.0.0.1 to talk to a model: one conversation, answered as it is written."""

import json
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from trainer.run.evaluation.conversation import Conversation
from trainer.system.errors import TrainerError

HOST = "127.0.0.1"
LONGEST = 1 << 20  # bytes of a message
PAGE = Path(__file__).with_name("page.html")


def serve(conversation: Conversation, model: str, port: int) -> None:
    """Serves until Ctrl-C. Raises TrainerError when the port is taken."""
    try:
        server = ThreadingHTTPServer((HOST, port), partial(_Handler, conversation, model, Lock()))
    except OSError as error:
        raise TrainerError(f"--port {port}: {error.strerror}: take another one") from error
    with server:
        print(f"http://{HOST}:{server.server_port}  (Ctrl-C ends)", flush=True)
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    """`GET /` the page and a new conversation, `POST /answer` the answer to {"said": TEXT} piece by piece,
    `POST /reset`.
    """

    def __init__(self, conversation: Conversation, model: str, one_at_a_time: Lock, *connection: object):
        self._conversation, self._model, self._lock = conversation, model, one_at_a_time
        super().__init__(*connection)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path != "/" or not self._is_asked_here():
            self.send_error(404)
            return
        with self._lock:  # a page that is loaded shows nothing of what was said before
            self._conversation.reset()
        self._begin("text/html; charset=utf-8")
        self.wfile.write(PAGE.read_text(encoding="utf-8").replace("MODEL", escape(self._model)).encode())

    def do_POST(self) -> None:
        # Another site's page cannot send JSON without asking first, which is not answered.
        said = self._said() if self.headers.get_content_type() == "application/json" else None
        if said is None or not self._is_asked_here() or self.path not in ("/answer", "/reset"):
            self.send_error(400)
            return
        self._begin("text/plain; charset=utf-8")
        with self._lock:
            if self.path == "/reset":
                self._conversation.reset()
                return
            try:
                for piece in self._conversation.answer(said):
                    self.wfile.write(piece.encode())
                    self.wfile.flush()
            except ConnectionError:
                self.close_connection = True  # the page was left

    def _said(self) -> str | None:
        try:
            length = int(self.headers.get("Content-Length", ""))
            said = json.loads(self.rfile.read(length))["said"] if 0 <= length <= LONGEST else None
            if not isinstance(said, str):
                return None
            said.encode()  # JSON may spell half of a surrogate pair, which is no text
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return said

    def _is_asked_here(self) -> bool:
        """Whether the browser was led here by this address, not by a name that somebody pointed to it."""
        return self.headers.get("Host", "").rpartition(":")[0] in (HOST, "localhost")

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing: requests hold what the person says."""
