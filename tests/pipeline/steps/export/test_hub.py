"""`push` against a hub on loopback, through the real client: what arrives, for whom, and what is not said."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.steps.export.hub_server import UploadHub

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


def push(hub: UploadHub, model: Path, *options: str, token: str | None = TOKEN) -> tuple[int, str]:
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(model.parents[1] / "home")}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_TOKEN": token} if token else {"HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "pipeline", "push", "me/tiny", "--model", str(model), *options]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def test_the_model_arrives_with_card_and_lineage_in_a_private_repository(hub: UploadHub, model: Path) -> None:
    status, said = push(hub, model)
    assert status == 0, said + str(hub.missed)
    assert f"{hub.url}/me/tiny/commit/1" in said and TOKEN not in said
    assert hub.files["me/tiny"] == {name: FILES[name] for name in FILES if name != "manifest.json"}
    assert hub.private == {"me/tiny": True}
    assert hub.messages == ["mine, 16,384 tokens, 0123456789abcdef"]


def test_the_token_of_a_login_is_used(hub: UploadHub, model: Path) -> None:
    home = model.parents[1] / "home"
    home.mkdir()
    (home / "token").write_text(TOKEN)
    status, said = push(hub, model, token=None)
    assert status == 0, said


def test_a_public_repository_is_published_to_only_on_request(hub: UploadHub, model: Path) -> None:
    hub.private["me/tiny"] = False
    status, said = push(hub, model)
    assert status == 2 and "me/tiny exists and is public: give --public" in said
    assert not hub.files
    assert push(hub, model, "--public")[0] == 0
    assert hub.files


def test_a_wrong_token_is_one_sentence_without_the_token(hub: UploadHub, model: Path) -> None:
    status, said = push(hub, model, token="hf_wrong-secret")
    assert status == 2 and "hf_wrong-secret" not in said
    assert said.startswith("error: me/tiny cannot be pushed to") and "HF_TOKEN" in said
    assert len(said.strip().splitlines()) == 1


def test_a_directory_that_is_not_an_export_is_refused(hub: UploadHub, tmp_path: Path) -> None:
    (tmp_path / "exported_model" / "other").mkdir(parents=True)
    status, said = push(hub, tmp_path / "exported_model" / "other")
    assert status == 2 and "is not an exported model" in said
