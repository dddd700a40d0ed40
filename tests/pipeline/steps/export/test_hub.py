"""`push` against a hub on loopback, through the real client: what arrives, for whom, and what is not said."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import constants

from pipeline.cli import main
from tests.pipeline.sources.hub.conftest import READ
from tests.pipeline.sources.hub_server import Hub
from tests.pipeline.steps.export.hub_server import UploadHub
from tests.pipeline.steps.export.small_export import exported_files
from tests.servers import serving

Push = Callable[..., tuple[int, str]]
ROOT = Path(__file__).parents[4]
TEXTS = ["The first text.", "The second one.", "A third."]
TOKEN = "hf_secret-of-the-test"
WHOLE = exported_files()
FILES = {
    **WHOLE,
    "README.md": b"---\nlibrary_name: transformers\n---\n# mine\n",
    "lineage.json": json.dumps({"recipe": {"name": "mine"}, "training": {"tokens": 16_384}}).encode(),
    "manifest.json": b"{}",
}


@pytest.fixture
def hub() -> Iterator[UploadHub]:
    with serving(UploadHub(TOKEN)) as server:
        yield server


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "exported_model" / "0123456789abcdef"
    directory.mkdir(parents=True)
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    return directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """As documents are exported: with a configuration for the corpus."""
    directory = tmp_path / "data"
    (directory / "train").mkdir(parents=True)
    rows = {"corpus": ["own"] * 3, "id": ["a", "b", "c"], "text": TEXTS}
    pq.write_table(pa.table(rows), directory / "train" / "own-00000.parquet")
    files = [{"split": "train", "path": "train/own-*.parquet"}]
    card = yaml.safe_dump({"configs": [{"config_name": "own", "data_files": files}]})
    (directory / "README.md").write_text(f"---\n{card}---\n")
    counts = {"train_documents": 2, "train_text_bytes": 9, "validation_documents": 1}
    (directory / "export.json").write_text(json.dumps({"format": "parquet", "counts": counts}))
    (directory / "croissant.json").write_text('{"name": "mine"}')
    return directory


@pytest.fixture
def push(
    hub: UploadHub, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Push:
    """`python -m pipeline push`: the exit status, and what it prints."""
    # as HF_ENDPOINT and so on, which the library reads when it is imported
    exported, token_path = model, str(model.parents[1] / "token")
    settings = {"ENDPOINT": hub.url, "HF_TOKEN_PATH": token_path, "HF_HUB_DISABLE_XET": True}
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)

    def pushed(
        *options: str,
        token: str = TOKEN,
        directory: Path | None = None,
        model: bool = True,
        repository: str = "me/tiny",
    ) -> tuple[int, str]:
        monkeypatch.setenv("HF_TOKEN", token)
        named = ["--model", str(directory or exported)] if model else []
        status = main(["push", repository, *named, *options])
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


@pytest.mark.parametrize(
    ("word", "status", "said"),
    [
        ("commit", 429, "Repeat the command later"),
        ("commit", 500, "Repeat the command later"),
        ("commit", 412, "Repeat the command later"),
        ("/upload/", 413, f": 413 {HTTPStatus(413).phrase}"),
    ],
)
def test_a_hub_that_refuses_files_is_told_with_the_status_and_the_next_push_arrives(
    hub: UploadHub, push: Push, word: str, status: int, said: str
) -> None:
    hub.refusals = {word: status}
    failed, message = push()
    line = message.partition("error: ")[2]  # the library's bar of a file stays before it
    assert failed == 2 and said in line and str(status) in line and TOKEN not in message
    hub.refusals = {}
    assert push()[0] == 0 and "model.safetensors" in hub.files["me/tiny"]


def test_a_hub_that_is_not_reached_is_told_with_what_to_do(hub: UploadHub, push: Push) -> None:
    hub.shutdown()
    hub.server_close()
    status, said = push()
    assert status == 2 and "refused. Repeat the command later" in said


def test_what_an_earlier_model_left_is_not_read_beside_the_new_one(hub: UploadHub, push: Push) -> None:
    others = ("model-00001-of-00002.safetensors", "model.safetensors.index.json", "chat_template.jinja")
    own = dict.fromkeys(("notes.txt", ".gitattributes", "gguf/model.gguf"), b"own")
    hub.private["me/tiny"] = True
    hub.files["me/tiny"] = dict.fromkeys((*others, "adapter_config.json", "README.md"), b"old") | own
    assert push()[0] == 0
    assert hub.files["me/tiny"] == own | {name: FILES[name] for name in FILES if name != "manifest.json"}


@pytest.mark.parametrize("repository", ["me/tiny/model", "me tiny", "me/..", "me/"])
def test_a_name_that_is_none_of_a_repository_is_not_taken_for_a_wrong_token(
    hub: UploadHub, push: Push, repository: str
) -> None:
    status, said = push(repository=repository)
    assert status == 2 and not hub.files
    assert "Repo id must" in said and "HF_TOKEN" not in said and ".." not in said.replace(repository, "")


def test_a_model_with_attention_sinks_is_refused_in_one_sentence(
    hub: UploadHub, push: Push, model: Path
) -> None:
    (model / "config.json").write_text('{"attention_sinks": true}')
    status, said = push()
    assert status == 2 and "has a dense one with attention sinks" in said and not hub.files


def test_documents_arrive_as_a_data_set_in_place_of_those_that_were_pushed_before(
    hub: UploadHub, push: Push, data: Path
) -> None:
    status, said = push("--data", str(data), model=False)
    assert status == 0, said + str(hub.missed)
    assert hub.private == {"me/tiny": True} and hub.messages == ["3 documents"]
    beside = {"README.md", "croissant.json", "export.json"}
    assert {*hub.files["me/tiny"]} == beside | {"train/own-00000.parquet"}
    described = json.loads(hub.files["me/tiny"]["croissant.json"])
    assert described["url"] == f"{hub.url}/datasets/me/tiny" and described["datePublished"]
    (data / "train/own-00000.parquet").rename(data / "train/new-00000.parquet")
    assert push("--data", str(data), model=False)[0] == 0
    assert {path for path in hub.files["me/tiny"] if "/" in path} == {"train/new-00000.parquet"}


def test_pushed_documents_are_read_by_datasets_and_as_a_source_of_this_program(
    hub: UploadHub, push: Push, data: Path, tmp_path: Path
) -> None:
    assert push("--data", str(data), model=False)[0] == 0
    with serving(Hub()) as server:
        server.files[server.commits[0]] = hub.files["me/tiny"]
        settings = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": ""}
        read = "from datasets import load_dataset; print(load_dataset('org/set', 'own')['train']['text'])"
        asked = {"kind": "hub", "name": "org/set", "config": "own"}
        for program, given in ((read, ""), (READ, json.dumps(asked))):
            done = subprocess.run(
                [sys.executable, "-c", program],
                env=os.environ | settings,
                input=given,
                text=True,
                capture_output=True,
                cwd=ROOT,
            )
            assert done.returncode == 0, done.stderr
            assert all(text in done.stdout for text in TEXTS), done.stdout


def test_what_holds_no_exported_documents_is_not_pushed(
    hub: UploadHub, push: Push, data: Path, model: Path
) -> None:
    status, said = push("--data", str(data))
    assert status == 2 and "--data pushes documents: leave out --model" in said
    (data / "export.json").write_text('{"format": "megatron", "counts": {}}')
    for directory, why in ((model, "No such file"), (data, "its format is megatron")):
        status, said = push("--data", str(directory), model=False)
        assert status == 2 and why in said and "give what `python -m pipeline export" in said
    assert not hub.files


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("left", [None, 0.5])
def test_half_an_export_is_not_published(
    name: str, left: float | None, hub: UploadHub, push: Push, model: Path
) -> None:
    content = (model / name).read_bytes()
    (model / name).unlink()
    if left:
        (model / name).write_bytes(content[: int(len(content) * left)])
    status, said = push()
    assert status == 2 and name in said and not hub.files and not hub.private


def test_a_directory_that_is_not_an_export_is_refused(hub: UploadHub, push: Push, tmp_path: Path) -> None:
    status, said = push(directory=tmp_path)
    assert status == 2 and "no model is there. Give the directory of an exported model" in said
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00000004"
    (checkpoint / "hf").mkdir(parents=True)
    (checkpoint / "hf" / "config.json").write_bytes(FILES["config.json"])
    (checkpoint / "lineage.json").write_bytes(FILES["lineage.json"])
    status, said = push(directory=checkpoint)
    assert status == 2 and "is not an exported model" in said and not hub.files
