"""`push` against a hub on loopback, through the real client: what arrives, for whom, and what is not said."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from pipeline.cli import main
from tests.pipeline.steps.export.hub_server import UploadHub

Push = Callable[..., tuple[int, str]]
TOKEN = "hf_secret-of-the-test"
FILES = {
    "README.md": b"---\nlibrary_name: transformers\n---\n# mine\n",
    "lineage.json": json.dumps({"recipe": {"name": "mine"}, "training": {"tokens": 16_384}}).encode(),
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 100,
    "manifest.json": b"{}",
}


@pytest.fixture
def hub() -> Iterator[UploadHub]:
    with UploadHub(TOKEN) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "exported_model" / "0123456789abcdef"
    directory.mkdir(parents=True)
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    return directory


@pytest.fixture
def push(
    hub: UploadHub, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Push:
    """`python -m pipeline push`: the exit status, and what it prints."""
    # as HF_ENDPOINT and so on, which the library reads when it is imported
    token_path = str(model.parents[1] / "token")
    settings = {"ENDPOINT": hub.url, "HF_TOKEN_PATH": token_path, "HF_HUB_DISABLE_XET": True}
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)

    def pushed(*options: str, token: str = TOKEN, directory: Path = model) -> tuple[int, str]:
        monkeypatch.setenv("HF_TOKEN", token)
        status = main(["push", "me/tiny", "--model", str(directory), *options])
        return status, "".join(capsys.readouterr())

    return pushed


def test_the_model_arrives_with_card_and_lineage_in_a_private_repository(hub: UploadHub, push: Push) -> None:
    status, said = push()
    assert status == 0, said + str(hub.missed)
    assert f"{hub.url}/me/tiny/commit/1" in said and TOKEN not in said
    assert hub.files["me/tiny"] == {name: FILES[name] for name in FILES if name != "manifest.json"}
    assert hub.private == {"me/tiny": True}
    assert hub.messages == ["mine, 16,384 tokens, 0123456789abcdef"]


def test_the_token_of_a_login_is_used(model: Path, push: Push) -> None:
    (model.parents[1] / "token").write_text(TOKEN)
    status, said = push(token="")
    assert status == 0, said


def test_a_public_repository_is_published_to_only_on_request(hub: UploadHub, push: Push) -> None:
    hub.private["me/tiny"] = False
    status, said = push()
    assert status == 2 and "me/tiny exists and is public: give --public" in said
    assert not hub.files
    assert push("--public")[0] == 0
    assert hub.files


def test_a_wrong_token_is_one_sentence_without_the_token(push: Push) -> None:
    status, said = push(token="hf_wrong-secret")
    assert status == 2 and "hf_wrong-secret" not in said
    assert said.startswith("error: me/tiny cannot be pushed to") and "HF_TOKEN" in said
    assert len(said.strip().splitlines()) == 1


def test_a_model_with_attention_sinks_is_refused_in_one_sentence(
    hub: UploadHub, push: Push, model: Path
) -> None:
    (model / "config.json").write_text('{"attention_sinks": true}')
    status, said = push()
    assert status == 2 and "has a dense one with attention sinks" in said and not hub.files


def test_a_directory_that_is_not_an_export_is_refused(hub: UploadHub, push: Push, tmp_path: Path) -> None:
    status, said = push(directory=tmp_path)
    assert status == 2 and "no model is there. Give the directory of an exported model" in said
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00000004"
    (checkpoint / "hf").mkdir(parents=True)
    (checkpoint / "hf" / "config.json").write_bytes(FILES["config.json"])
    (checkpoint / "lineage.json").write_bytes(FILES["lineage.json"])
    status, said = push(directory=checkpoint)
    assert status == 2 and "is not an exported model" in said and not hub.files
