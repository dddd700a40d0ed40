"""A tokenizer fetched by name from a hub on loopback, at the revision that was asked for; the hub's library
takes its settings when imported.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.stages import tokenizer as bpe
from tests.pipeline.sources.hub_server import Hub
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


@pytest.fixture
def hub() -> Iterator[Hub]:
    params = bpe.TokenizerParams(vocab_size=300)
    made = bpe.files(bpe.train([pa.array(TEXTS)], params), params)
    config = json.loads(made["tokenizer_config.json"]) | {"auto_map": {"AutoTokenizer": "code.py"}}
    with Hub() as server:
        server.files = {
            "bare": {"tokenizer.json": made["tokenizer.json"].encode()},
            "a" * 40: {
                "tokenizer.json": made["tokenizer.json"].encode(),
                "tokenizer_config.json": json.dumps(config).encode(),
            },
        }
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def fetched(hub: Hub, tmp_path: Path, **settings: str) -> dict[str, str]:
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
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
    found = fetched(hub, tmp_path, **{"from": "org/set"})
    assert found["tokenizer.json"].encode() == hub.files["a" * 40]["tokenizer.json"]
    config = json.loads(found["tokenizer_config.json"])
    assert config["bos_token"] == "[BOT]" and "auto_map" not in config


def test_a_revision_is_followed_and_missing_names_of_tokens_can_be_given(hub: Hub, tmp_path: Path) -> None:
    bare = {"from": "org/set", "revision": "bare"}
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
