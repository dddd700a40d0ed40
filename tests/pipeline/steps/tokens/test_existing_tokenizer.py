"""A tokenizer fetched by name from a hub on loopback, at the revision that was asked for."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from huggingface_hub import constants
from tokenizers import Tokenizer

from pipeline.stages import bpe
from pipeline.steps.tokens.existing_tokenizer import fetch
from tests.pipeline.sources.hub_server import Hub
from tests.pipeline.steps.corpora import TEXTS
from tests.servers import serving


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    params = bpe.TokenizerParams(vocab_size=300)
    made = bpe.files(bpe.train([pa.array(TEXTS)], params))
    config = json.loads(made["tokenizer_config.json"]) | {"auto_map": {"AutoTokenizer": "code.py"}}
    with serving(Hub()) as server:
        server.files = {
            "bare": {"tokenizer.json": made["tokenizer.json"].encode()},
            "a" * 40: {
                "tokenizer.json": made["tokenizer.json"].encode(),
                "tokenizer_config.json": json.dumps(config).encode(),
            },
        }
        # as HF_ENDPOINT and so on, which the library reads when it is imported
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        settings = {"HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_CACHE": str(tmp_path)}
        for name, value in settings.items():
            monkeypatch.setattr(constants, name, value)
        yield server


def fetched(**settings: object) -> dict[str, str]:
    return fetch(bpe.ExistingTokenizer.model_validate(settings))


def test_a_tokenizer_is_fetched_by_name_without_what_would_run_code(hub: Hub) -> None:
    found = fetched(**{"from": "org/set"})
    assert found["tokenizer.json"].encode() == hub.files["a" * 40]["tokenizer.json"]
    config = json.loads(found["tokenizer_config.json"])
    assert config["bos_token"] == "[BOT]" and "auto_map" not in config


def test_a_revision_is_followed_and_missing_names_of_tokens_can_be_given(hub: Hub) -> None:
    bare = {"from": "org/set", "revision": "bare"}
    with pytest.raises(bpe.TokenizerError, match="no bos_token: name one of its tokens as begin_of_text"):
        fetched(**bare)
    found = fetched(**bare, begin_of_text="[BOT]", end_of_text="[EOT]")
    assert json.loads(found["tokenizer_config.json"])["eos_token"] == "[EOT]"


def test_what_cuts_or_fills_texts_is_left_out(tmp_path: Path) -> None:
    saved = bpe.train([pa.array(TEXTS)], bpe.TokenizerParams(vocab_size=300))
    files = bpe.files(saved)
    saved.enable_truncation(2)
    saved.enable_padding(length=9)
    saved.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(files["tokenizer_config.json"])
    found = Tokenizer.from_str(fetched(**{"from": str(tmp_path)})["tokenizer.json"])
    assert found.truncation is None and found.padding is None
    assert found.decode(found.encode("A text of some words.").ids) == "A text of some words."


def test_a_name_that_the_hub_does_not_know_is_said(hub: Hub) -> None:
    said = r"'org/none' is neither a local path nor a tokenizer on the hub: its tokenizer\.json"
    with pytest.raises(bpe.TokenizerError, match=said):
        fetched(**{"from": "org/none"})


def test_tokens_for_conversations_are_appended_where_they_are_missing(hub: Hub) -> None:
    found = fetched(**{"from": "org/set"}, chat=True)
    ends = bpe.boundaries(found["tokenizer.json"], found["tokenizer_config.json"])
    assert list(ends.control.values()) == list(range(300, 305))
    assert found["chat_template.jinja"] == json.loads(found["tokenizer_config.json"])["chat_template"]
    hub.files["a" * 40]["tokenizer.json"] = found["tokenizer.json"].encode()
    again = fetched(**{"from": "org/set", "revision": "a" * 40}, chat=True)
    assert again["tokenizer.json"] == found["tokenizer.json"]
