"""A directory that Python imports the user's modules from."""

from pathlib import Path

import pytest

from pipeline.plugins import loading


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    loading.load.cache_clear()
    return tmp_path
