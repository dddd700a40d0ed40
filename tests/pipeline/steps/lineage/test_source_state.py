"""How a corpus stands: its source as it was read, changed, half followed, or out of reach."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage.source_state import State, observe_all
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.stages import of_data
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS, prepare
from tests.pipeline.steps.make import collect
from tests.pipeline.steps.training import test_plan
from tests.pipeline.steps.training.test_plan import make_shards


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    settings = test_plan.recipe().model_dump(mode="json")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings))
    return load_recipe(tmp_path / "recipe.yaml")


@pytest.fixture
def store(store: Store, recipe: Recipe) -> Store:
    """Two corpora up to token shards, which the recipe has used."""
    used = seen_again(store, recipe)
    for key in of_data(recipe):
        used.use(used.current(key))
    return used


def states(store: Store, recipe: Recipe) -> list[State]:
    return [one.state for one in observe_all(seen_again(store, recipe), recipe)]


def seen_again(store: Store, recipe: Recipe) -> Store:
    """The store as another process sees it."""
    return Store(store.root, RecipeVersions(recipe))


def change(path: Path) -> None:
    path.write_text(path.read_text() + json.dumps({"text": "One more document."}) + "\n")


def test_a_corpus_whose_source_changed_is_outdated_and_its_neighbor_is_not(
    store: Store, recipe: Recipe, tmp_path: Path
) -> None:
    assert states(store, recipe) == [State.UP_TO_DATE, State.UP_TO_DATE]
    change(tmp_path / "first.jsonl")
    assert states(store, recipe) == [State.OUTDATED, State.UP_TO_DATE]


def test_a_change_that_was_read_but_not_followed_to_the_shards_is_not_forgotten(
    store: Store, recipe: Recipe, tmp_path: Path
) -> None:
    change(tmp_path / "first.jsonl")
    before = observe_all(seen_again(store, recipe), recipe)[0]
    collect(store, ENGINE, "first", recipe.corpus("first").source, 1_000_000)
    assert states(store, recipe) == [State.OUTDATED, State.UP_TO_DATE]
    assert observe_all(seen_again(store, recipe), recipe)[0] == before  # the same change


def test_a_corpus_that_was_never_taken_to_shards_is_new(recipe: Recipe, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    prepare(store, tmp_path / "first.jsonl", TEXTS[:15])
    (tmp_path / "second.jsonl").write_text(json.dumps({"text": TEXTS[0]}))
    assert states(store, recipe) == [State.NEW, State.NEW]


def test_a_source_that_cannot_be_looked_at_hides_no_other(
    store: Store, recipe: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "first.jsonl").unlink()
    change(tmp_path / "second.jsonl")
    found = observe_all(seen_again(store, recipe), recipe)
    assert [one.state for one in found] == [State.UNKNOWN, State.OUTDATED]
    assert "no file matches" in found[0].version


def test_a_change_that_comes_back_is_another_one(store: Store, recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "first.jsonl"
    first, second = path.read_text(), path.read_text() + json.dumps({"text": TEXTS[20]}) + "\n"
    seen = []
    for content in (second, first, second):
        path.write_text(content)
        seen.append(observe_all(seen_again(store, recipe), recipe)[0])
        prepare(store, path, [json.loads(line)["text"] for line in content.splitlines()])
        make_shards(store, recipe)
    assert all(one.state is State.OUTDATED for one in seen)
    assert seen[0].version == seen[2].version and seen[0].in_use_since != seen[2].in_use_since
