"""The examples do what docs/your-own-code.md promises, each in a copy of its directory."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.recipe.loading import load_recipe
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.integration.project import ROOT
from tests.pipeline.steps.make import collect, judge, scrub, transform
from tests.rows import stored_rows

EXAMPLES = ROOT / "examples"
ENGINE = LocalEngine(workers=1)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Copies an example; its modules are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def copy(name: str) -> Path:
        return Path(
            shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        )

    yield copy
    ENGINE.close()  # its worker keeps modules, too
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def run(directory: Path) -> Store:
    """Takes the corpora of the recipe up to quality."""
    recipe, store = load_recipe(directory / "recipe.yaml"), Store(directory / "store")
    for corpus in recipe.corpora:
        collect(store, ENGINE, corpus.name, corpus.source, recipe.raw.part_bytes)
        read = None
        if recipe.is_transformed(corpus.name):
            read = transform(store, ENGINE, corpus.name, recipe.transforms).key
        scrub(store, ENGINE, corpus.name, recipe.scrub, read)
        judge(store, ENGINE, corpus.name, recipe.quality)
    return store


def versions(store: Store) -> set[Path]:
    return {path.parent.relative_to(store.root) for path in store.root.rglob("manifest.json")}


def test_the_classifier_rejects_by_score_and_a_new_threshold_measures_nothing(
    copied: Callable[[str], Path],
) -> None:
    directory = copied("quality_classifier")
    store = run(directory)
    measured = stored_rows(store.current(keys.filtered("manuals", "Prose")), "signals")
    scores = {row["id"]: row["score"] for row in measured}
    verdicts = store.current(keys.quality("manuals"))
    rejected = [row["id"] for row in stored_rows(verdicts, "verdicts") if row["rule"] == "Prose"]
    assert verdicts.counts["rejected/Prose"] == len(rejected) > 0
    assert verdicts.counts["kept"] > len(rejected)
    assert max(scores[name] for name in rejected) < 0.5
    assert all(scores[row["id"]] >= 0.5 for row in stored_rows(verdicts, "verdicts") if row["keep"])
    before = versions(store)
    path = directory / "recipe.yaml"
    path.write_text(path.read_text().replace("min_score: 0.5", "min_score: 0.6"))
    store = run(directory)
    assert {made.parent.as_posix() for made in versions(store) - before} == {"corpora/manuals/quality"}
    assert store.current(keys.quality("manuals")).counts["rejected/Prose"] > len(rejected)


def test_the_table_is_read_again_only_when_it_changed(copied: Callable[[str], Path]) -> None:
    directory = copied("sql_source")
    command = [sys.executable, "articles.py", "articles.sqlite"]
    subprocess.run(command, cwd=directory, env={"PYTHONPATH": str(ROOT)}, check=True)
    store = run(directory)
    raw = store.current(keys.raw("articles"))
    assert raw.counts["documents"] > 50
    assert stored_rows(raw, "documents")[0]["url"].startswith("https://docs.python.org/3/")
    assert run(directory).current(keys.raw("articles")).path == raw.path
    with closing(sqlite3.connect(directory / "articles.sqlite")) as connection, connection:
        connection.execute("UPDATE articles SET body = 'Shorter.', updated = '2026-02-01' WHERE id = 7")
    raw = run(directory).current(keys.raw("articles"))
    assert "Shorter." in [row["text"] for row in stored_rows(raw, "documents")]


def test_the_transform_removes_menus_notices_and_footers(copied: Callable[[str], Path]) -> None:
    store = run(copied("boilerplate"))
    transformed = store.current(keys.transformed("pages"))
    assert transformed.counts["changed"] == transformed.counts["documents"] == 6
    assert store.current(keys.quality("pages")).counts["kept"] == 6
    texts = [row["text"] for row in stored_rows(store.current(keys.scrubbed("pages")), "documents")]
    assert all(text.endswith(".") and "\n" not in text for text in texts)
    raw = [row["text"] for row in stored_rows(store.current(keys.raw("pages")), "documents")]
    assert all("Home | Stories" in text and "cookies" in text for text in raw)
