"""A store for each test, and the user's modules for each."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE


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
