"""What a node of a cluster compares with the run: its own code, that of the user, and the libraries."""

import importlib
import sys
from pathlib import Path

import pytest

from pipeline.store.engines.same_code import libraries, refusal, source_files
from tests.integration.project import ROOT


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A filter beside a recipe, with a helper in a package, as the run has loaded them."""
    (tmp_path / "own").mkdir()
    for name, text in {
        "own_filter.py": "import own.lists",
        "own/__init__.py": "",
        "own/lists.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_filter")
    return tmp_path


@pytest.fixture(autouse=True)
def unloaded() -> object:
    yield
    for name in ("own_filter", "own", "own.lists"):
        sys.modules.pop(name, None)


def test_each_file_of_the_code_is_compared_and_of_libraries_none() -> None:
    files = source_files()
    everything = {
        path.relative_to(ROOT).as_posix()
        for top in ("pipeline", "trainer")
        for path in (ROOT / top).rglob("*.py")
    }
    assert everything <= files.keys()
    assert "pipeline/stages/languages.json" in files
    assert not [name for name in files if name.startswith(("numpy", "dagster", "json/", "pytest"))]
    assert refusal(files, "worker-1") is None


def test_a_changed_file_of_the_users_own_code_is_named(own_code: Path) -> None:
    run = source_files()
    assert {"own_filter.py", "own/__init__.py", "own/lists.py"} <= run.keys()
    assert refusal(run, "worker-1") is None
    (own_code / "own" / "lists.py").write_text("WORDS = ()")
    assert str(refusal(run, "worker-1")).startswith(
        "node worker-1 has another own/lists.py than the machine of"
    )
    (own_code / "own_filter.py").unlink()
    assert ", and 1 more: install" in str(refusal(run, "worker-1"))
    # what the run has loaded is the file as it was
    (own_code / "own_filter.py").write_text("import own.lists")
    assert source_files()["own/lists.py"] == run["own/lists.py"]


def test_a_library_of_another_version_or_build_is_named() -> None:
    run = libraries()
    assert {"python", "numpy", "pyarrow", "tokenizers", "torch"} <= run.keys()
    assert refusal(run, "worker-1") is None
    version, sha256 = run["numpy"]
    for other, said in (
        (("0.1", sha256), f"another numpy than the machine of the run ({version} instead of 0.1): install"),
        ((version, "0" * 64), "another numpy than the machine of the run: install"),
    ):
        assert said in str(refusal({**run, "numpy": other}, "worker-1"))
    assert "(none instead of 1.0)" in str(refusal({"no-such-package": ("1.0", "")}, "worker-1"))
