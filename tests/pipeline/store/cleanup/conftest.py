"""A recipe of one corpus, up to its token shards."""

import shutil
from pathlib import Path

import pytest
import yaml

from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import TEXTS, prepare
from tests.pipeline.steps.training.test_plan import make_shards, recipe


@pytest.fixture(scope="session")
def one_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Up to token shards."""
    directory = tmp_path_factory.mktemp("one_corpus")
    store = Store(directory / "store")
    prepare(store, directory / "first.jsonl", TEXTS[:15])
    make_shards(store, recipe("first"))
    return directory


@pytest.fixture
def store(one_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A copy of the corpus, and a recipe for the commands."""
    shutil.copytree(one_corpus, tmp_path, dirs_exist_ok=True)
    store = Store(tmp_path / "store")
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    settings = {
        "name": "mine",
        "corpora": [{"name": "first", "source": {"kind": "files", "paths": ["first.jsonl"]}}],
        "tokenizer": {"vocab_size": 400},
        "training": TRAINING,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    return store
