"""What is wrong with the weights that a recipe starts from is said before anything is made."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from safetensors.numpy import save

from pipeline.recipe.recipe import Recipe
from pipeline.steps.training import initial_weights
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.sources.hub_server import Hub
from trainer.config import ModelConfig
from trainer.config.hugging_face import config_json

INDEX, ONE_FILE = "model.safetensors.index.json", {"model.safetensors": save({})}
IN_PARTS = {"model-1.safetensors": save({})}


def recipe(**pretrained: str) -> Recipe:
    return Recipe.model_validate(
        {"name": "mine", "corpora": ["openwebtext"], "training": TRAINING | {"pretrained": pretrained}}
    )


def config(**changes: Any) -> dict[str, bytes]:
    shape = ModelConfig.model_validate(TRAINING["model"])
    written = config_json(shape, vocab_size=400, context=64, bot_id=2, eot_id=3)
    return {"config.json": json.dumps(written | changes).encode()}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (config(model_type="gemma") | ONE_FILE, "model_type 'gemma' is not supported"),
        (config(hidden_size=128) | ONE_FILE, "set d_model: 128 "),
        (config(attention_bias=True) | ONE_FILE, "attention_bias True is not supported"),
        (config(rope_scaling={"rope_type": "longrope"}) | ONE_FILE, "not 'longrope'"),
        ({"config.json": b"{"} | ONE_FILE, "config.json: cannot be read"),
        (ONE_FILE, "holds no config.json"),
        (config(), "does not hold *.safetensors files"),
        (config() | {"a.safetensors": save({})}, "holds neither model.safetensors nor"),
        (
            config() | IN_PARTS | {INDEX: b'{"weight_map": {"a": "lost.safetensors"}}'},
            "lists lost.safetensors, which is not a file",
        ),
        (config() | IN_PARTS | {INDEX: b'{"weight_map": {"a": 1}}'}, "lists 1, which is not a file"),
    ],
)
def test_weights_that_cannot_be_trained_are_refused_at_once(
    tmp_path: Path, files: dict[str, bytes], told: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PipelineError) as raised:
        initial_weights.check(recipe(path=str(tmp_path)))
    assert str(raised.value).startswith("training.pretrained") and told in str(raised.value)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        # as HF_ENDPOINT and so on, which the library reads when it is imported
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        settings = {
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_CACHE": str(tmp_path),
            "HF_HUB_OFFLINE": False,
        }
        for name, value in settings.items():
            monkeypatch.setattr(constants, name, value)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_weights_of_the_hub_are_looked_at_before_anything_is_made(hub: Hub) -> None:
    hub.files = {hub.commits[0]: config(model_type="gemma")}
    for repo, revision, told in (
        ("org/set", "main", "model_type 'gemma' is not supported"),
        ("org/set", "other", "config.json of org/set at other cannot be downloaded"),
        ("org/none", "main", "config.json of org/none at main cannot be downloaded"),
        ("a/b/c", "main", "config.json of a/b/c at main cannot be downloaded"),
    ):
        with pytest.raises(PipelineError, match=told):
            initial_weights.check(recipe(repo=repo, revision=revision))
        assert initial_weights.located(recipe(repo=repo, revision=revision)).pretrained


def test_a_branch_that_has_moved_is_other_work_and_is_trained_at_its_commit(hub: Hub, tmp_path: Path) -> None:
    branch, identities = recipe(repo="org/set", revision="main"), []
    for commit in hub.commits:
        hub.files[commit] = config()
        initial_weights.check(branch)
        training = initial_weights.located(branch)
        assert training.pretrained and training.pretrained.revision == commit
        identities.append(initial_weights.identity(Store(tmp_path / "store"), training))
    assert identities[0] != identities[1]
