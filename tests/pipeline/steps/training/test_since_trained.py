"""What a person is told of the recipe's model once its text or its settings have changed."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.cli import main
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import TEXTS, prepare
from tests.pipeline.steps.training.test_plan import another_run, finish, make_shards


@pytest.fixture
def trained(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a finished training of the recipe in use."""
    seen, recipe = another_run(store, tmp_path)
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(recipe.file))
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    monkeypatch.chdir(tmp_path)
    prepare(seen, tmp_path / "first.jsonl", TEXTS[:15])  # recorded as read last
    run = plan.plan(seen, recipe)
    run.write_config()
    finish(seen, run)
    return run.name


def change_the_text(store: Store, directory: Path) -> None:
    seen, recipe = another_run(store, directory)
    prepare(seen, directory / "first.jsonl", TEXTS[:9])
    make_shards(Store(store.root, RecipeVersions(recipe)), recipe)


@pytest.mark.parametrize("command", [["summary"], ["export", "--format", "gguf", "-o", "out"]], ids=" ".join)
def test_a_changed_text_is_named_with_the_model_from_before_it(
    command: list[str], trained: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_the_text(store, tmp_path)
    assert main(command) == 2
    assert capsys.readouterr().err == (
        f"error: the text has changed since {trained} was trained (corpus first); --model {trained} takes "
        "it, `pretrain` makes a new one\n"
    )


def test_a_changed_text_is_named_also_before_the_stages_have_run_on_it(
    trained: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(another_run(store, tmp_path)[0], tmp_path / "second.jsonl", TEXTS[20:])
    assert main(["summary"]) == 2
    assert f"the text has changed since {trained} was trained (corpus second)" in capsys.readouterr().err


def test_documents_that_were_removed_are_no_change_of_the_code(
    trained: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = next(iter(store.newest_first(keys.raw("first")))).files("documents")
    document = pq.read_table(path, columns=["id"]).column("id")[0].as_py()
    assert main(["forget", document, "--reason", "asked for", "--yes"]) == 0
    capsys.readouterr()
    assert main(["summary"]) == 2
    assert f"the text has changed since {trained} was trained (corpus first); " in capsys.readouterr().err


def test_changed_settings_are_not_taken_for_changed_text(
    trained: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, recipe = another_run(store, tmp_path)
    training = recipe.training.model_dump(mode="json") | {"seed": 7, "threads": 2}
    another_run(store, tmp_path, training=training)
    assert main(["summary"]) == 2
    assert f"settings have changed since {trained} was trained (training.seed); " in capsys.readouterr().err


def test_a_report_counts_what_is_not_made_and_names_the_model_from_before(
    trained: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_the_text(store, tmp_path)
    assert main(["report"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    missing = "Curves, Mixture, Scores, Lineage, What a regulator asks of training data"
    assert first.endswith(f"MB, 5 sections are not made: {missing}")
    assert "fields" not in first
    assert second.startswith(f"the text has changed since {trained} was trained (corpus first); ")
    assert second.endswith(f"--model {trained} reports on it, `pretrain` makes a new one")
