"""A small run on two corpora, and the question `python -m pipeline lineage`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage.checkpoints import read
from pipeline.steps.lineage.readers import readers
from pipeline.steps.trace.trace import Searcher
from pipeline.steps.training import plan
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import SETTINGS, TEXTS, StoredRun, prepare
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer
from trainer.run import loop
from trainer.system.paths import STORE_VARIABLE

ENGINE = LocalEngine(workers=1)
QUICK = {"compile": False, "samples": {"prompts": []}}
CORPORA = {"first": TEXTS[:15], "second": [*TEXTS[15:30], TEXTS[2]]}


@pytest.fixture(scope="package")
def trained(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """Two corpora that share a document, and a run on them that kept its last two of four checkpoints."""
    directory = tmp_path_factory.mktemp("trained")
    store = Store(directory / "store")
    for name, texts in CORPORA.items():
        prepare(store, directory / f"{name}.jsonl", texts)
    return store, trained_on(
        store, [{"name": name} for name in CORPORA], {"vocab_size": 300}, TRAINING | QUICK
    )


def trained_on(
    store: Store, corpora: list[dict[str, Any]], tokens: dict[str, Any], training: dict[str, Any]
) -> Path:
    """The directory of a finished run of a recipe that is written beside the store, on what was prepared."""
    directory = store.root.parent
    settings = {
        "name": "mine",
        "corpora": [
            {**corpus, "source": {"kind": "files", "paths": [f"{corpus['name']}.jsonl"]}}
            for corpus in corpora
        ],
        "tokenizer": tokens,
        "shards": {"validation_fraction": 0.2},
        "training": training,
        **SETTINGS,
    }
    (directory / "recipe.yaml").write_text(yaml.safe_dump(settings))
    recipe = load_recipe(directory / "recipe.yaml")
    deduplicate(store, ENGINE, recipe.corpus_names, recipe.dedup)
    tokenizer(
        store, ENGINE, recipe.name, recipe.corpus_names, recipe.tokenizer, recipe.shards.validation_fraction
    )
    for name in recipe.corpus_names:
        tokenize(store, ENGINE, name, recipe.shards)
    return train(store, recipe)


def train(store: Store, recipe: Recipe) -> Path:
    """The directory of a finished run of the recipe on the shards in the store."""
    run = plan.plan(store, recipe)
    run.config.run_dir.mkdir(parents=True)
    run.write_config()
    assert loop.run(run.config) == loop.DONE
    return run.config.run_dir


@pytest.fixture
def said(
    trained: StoredRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """`python -m pipeline ...`: what it prints, on standard error where it fails."""
    monkeypatch.setenv(STORE_VARIABLE, str(trained[0].root))
    monkeypatch.setenv(RECIPE_VARIABLE, str(trained[0].root.parent / "recipe.yaml"))

    def said(*arguments: str) -> str:
        status = main(arguments)
        printed = capsys.readouterr()
        return printed.out if status == 0 else printed.err

    return said


@pytest.fixture
def ask(said: Callable[..., str]) -> Callable[..., str]:
    """`python -m pipeline lineage ...`."""
    return partial(said, "lineage")


@pytest.fixture(scope="module")
def searcher(trained: StoredRun) -> Searcher:
    store, run = trained
    (reader,) = readers(store, read(run / "checkpoints" / "step-00000032"))
    found = Searcher(reader, ENGINE)
    assert found.corpora.keys() == CORPORA.keys()  # indexed
    return found
