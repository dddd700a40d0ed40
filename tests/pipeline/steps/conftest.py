"""Two corpora up to the token shards of `recipe()`, made once for all tests that begin with them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS, prepare
from tests.pipeline.steps.training.test_plan import make_shards, recipe


@pytest.fixture(scope="session")
def two_corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("two_corpora")
    store = Store(directory / "store")
    prepare(store, directory / "first.jsonl", TEXTS[:15])
    prepare(store, directory / "second.jsonl", TEXTS[15:])
    make_shards(store, recipe())
    return directory


@pytest.fixture
def store(two_corpora: Path, tmp_path: Path) -> Store:
    """A copy for each test."""
    shutil.copytree(two_corpora, tmp_path, dirs_exist_ok=True)
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def _own_code_is_imported_anew() -> Iterator[None]:
    """A worker keeps the modules of a user that it has imported, and the next test writes others."""
    yield
    ENGINE.close()
