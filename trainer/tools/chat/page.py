"""A page on 127.0.0.1 to talk to a model: a conversation in each tab, answered as it is written."""

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
TABS = 16  # whose conversations are held: each has a cache of the model's context
PAGE = Path(__file__).with_name("page.html")


def serve(conversation: Conversation, model: str, port: int) -> None:
    """Serves until Ctrl-C. Raises TrainerError when the port is taken."""
    try:
        server = ThreadingHTTPServer((HOST, port), partial(_Handler, _Tabs(conversation), model, Lock()))
    except OSError as error:
        raise TrainerError(f"--port {port}: {error.strerror}: take another one") from error
    with server:
        print(f"http://{HOST}:{server.server_port}  (Ctrl-C ends)", flush=True)
        server.serve_forever()


class _Tabs:
    """The conversation of each tab, by the name that its page drew. Of more than TABS conversations, those
    used last are kept.
    """

    def __init__(self, first: Conversation):
        self._first = first
        self._named = {"": first}
        self._lock = Lock()

    def __getitem__(self, name: str) -> Conversation:
        with self._lock:
            found = self._named.pop(name, None) or self._first.another()
            self._named[name] = found
            if len(self._named) > TABS:
                del self._named[next(iter(self._named))]
        return found

    def forget(self, name: str) -> None:
        """Forgets the conversation of a tab, without waiting for an answer that is being written in this tab
        or another.
        """
        with self._lock:
            self._named.pop(name, None)


class _Handler(BaseHTTPRequestHandler):
    """`GET /` the page, which begins a conversation. `POST /answer` the answer to {"said": TEXT} piece by
    piece, `POST /reset`; both take {"tab": NAME}, too. Loading the page resets that without a name.
    """

    def __init__(self, tabs: _Tabs, model: str, one_at_a_time: Lock, *connection: object):
        self._tabs, self._model, self._lock = tabs, model, one_at_a_time
        super().__init__(*connection)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path != "/" or not self._is_asked_here():
            self.send_error(404)
            return
        self._tabs.forget("")  # a page that is loaded shows nothing of what was said before
        self._begin("text/html; charset=utf-8")
        self.wfile.write(PAGE.read_text(encoding="utf-8").replace("MODEL", escape(self._model)).encode())

    def do_POST(self) -> None:
        # Another site's page cannot send JSON without asking first, which is not answered.
        said = self._message_and_tab() if self.headers.get_content_type() == "application/json" else None
        if said is None or not self._is_asked_here() or self.path not in ("/answer", "/reset"):
            self.send_error(400)
            return
        self._begin("text/plain; charset=utf-8")
        with self._lock:
            text, tab = said
            conversation = self._tabs[tab]
            if self.path == "/reset":
                conversation.reset()
                return
            try:
                for piece in conversation.answer(text):
                    self.wfile.write(piece.encode())
                    self.wfile.flush()
            except ConnectionError:
                self.close_connection = True  # the page was left

    def _message_and_tab(self) -> tuple[str, str] | None:
        """What is said, and in which tab."""
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 <= length <= LONGEST:
                return None
            sent = json.loads(self.rfile.read(length))
            said, tab = sent["said"], sent.get("tab", "")
            if not isinstance(said, str) or not isinstance(tab, str):
                return None
            said.encode()  # JSON may spell half of a surrogate pair, which is no text
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return said, tab

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
