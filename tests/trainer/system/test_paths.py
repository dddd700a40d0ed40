"""Paths in recipes and in variables, as people write them."""

from pathlib import Path

import pytest

from pipeline.recipe.loading import RECIPE_VARIABLE, recipe_path
from pipeline.store.store import default_store
from trainer.system.paths import STORE_VARIABLE, at_home, dagster_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_only_the_name_of_somebody_stands_for_a_directory(home: Path) -> None:
    assert at_home("~/a b") == home / "a b"
    for name in ("~$report.docx", "~nobody-of-this-name/x", "a/~/b"):
        assert at_home(name) == Path(name)


def test_a_tilde_in_a_variable_that_no_shell_read_is_the_home_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a file of variables of systemd or Docker, or after quotes."""
    monkeypatch.setenv(STORE_VARIABLE, "~/store")
    monkeypatch.setenv(RECIPE_VARIABLE, "~/mine.yaml")
    monkeypatch.setenv("DAGSTER_HOME", "~")
    assert default_store().root == home / "store"
    assert recipe_path() == home / "mine.yaml"
    assert dagster_home() == home
