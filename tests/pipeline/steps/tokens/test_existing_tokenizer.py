"""A tokenizer fetched by name from a hub on loopback, at the revision that was asked for; the hub's library
takes its settings when imported.
"""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.stages import tokenizer as bpe
from tests.pipeline.steps.corpora import TEXTS

FETCH = """
import json, sys
from pipeline.steps.tokens.existing_tokenizer import fetch
from pipeline.stages.tokenizer import ExistingTokenizer, TokenizerError

try:
    print(json.dumps(fetch(ExistingTokenizer.model_validate(json.loads(sys.argv[1])))))
except TokenizerError as error:
    print(json.dumps({"error": str(error)}))
"""


class Hub(ThreadingHTTPServer):
    """`files` by path, as `/<model>/resolve/<revision>/<file>`."""

    files: dict[str, bytes]


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        content = self.server.files.get(self.path)
        self.send_response(404 if content is None else 200)
        if content is None:
            self.send_header("X-Error-Code", "EntryNotFound")
        else:
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", "a" * 40)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if content and self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    params = bpe.TokenizerParams(vocab_size=300)
    made = bpe.files(bpe.train([pa.array(TEXTS)], params), params)
    server = Hub(("127.0.0.1", 0), _Handler)
    config = json.loads(made["tokenizer_config.json"]) | {"auto_map": {"AutoTokenizer": "code.py"}}
    server.files = {
        "/org/theirs/resolve/main/tokenizer.json": made["tokenizer.json"].encode(),
        "/org/theirs/resolve/main/tokenizer_config.json": json.dumps(config).encode(),
        "/org/bare/resolve/v1/tokenizer.json": made["tokenizer.json"].encode(),
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def fetched(hub: Hub, tmp_path: Path, **settings: str) -> dict[str, str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}",
        "HF_HOME": str(tmp_path),
        "HF_HUB_DISABLE_XET": "1",
    }
    ended = subprocess.run(
        [sys.executable, "-c", FETCH, json.dumps(settings)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(json.loads(ended.stdout))


def test_a_tokenizer_is_fetched_by_name_without_what_would_run_code(hub: Hub, tmp_path: Path) -> None:
    found = fetched(hub, tmp_path, **{"from": "org/theirs"})
    assert found["tokenizer.json"].encode() == hub.files["/org/theirs/resolve/main/tokenizer.json"]
    config = json.loads(found["tokenizer_config.json"])
    assert config["bos_token"] == "[BOT]" and "auto_map" not in config


def test_a_revision_is_followed_and_missing_names_of_tokens_can_be_given(hub: Hub, tmp_path: Path) -> None:
    bare = {"from": "org/bare", "revision": "v1"}
    assert (
        "has no bos_token: name one of its tokens as begin_of_text" in fetched(hub, tmp_path, **bare)["error"]
    )
    found = fetched(hub, tmp_path, **bare, begin_of_text="[BOT]", end_of_text="[EOT]")
    assert json.loads(found["tokenizer_config.json"])["eos_token"] == "[EOT]"


def test_a_name_that_the_hub_does_not_know_is_said(hub: Hub, tmp_path: Path) -> None:
    assert (
        "'org/none' is neither a local path nor a tokenizer on the Hub: its tokenizer.json"
        in fetched(hub, tmp_path, **{"from": "org/none"})["error"]
    )
