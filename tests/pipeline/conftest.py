"""Two corpora up to the token shards of `recipe()`, made once for all tests that begin with them."""

from pathlib import Path

import pytest

from pipeline.store.store import Store
from tests.pipeline.steps.corpora import TEXTS, prepare
from tests.pipeline.steps.training.test_plan import make_shards, recipe


@pytest.fixture(scope="session")
def two_corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("two_corpora")
    store = Store(directory / "store")
    prepare(store, directory / "first.jsonl", TEXTS[:15])
    prepare(store, directory / "second.jsonl", TEXTS[15:])
    make_shards(store, recipe())
    return directory
