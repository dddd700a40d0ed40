"""The table of stages: a row is enough for versions, the lineage and the partitions of variants."""

from pathlib import Path

import pytest

from pipeline.recipe.recipe import Recipe, load_recipe
from pipeline.steps import recipe_versions
from pipeline.steps.recipe_versions import STAGES, RecipeVersions, differing, stage_of
from pipeline.steps.stages import Stage, made
from pipeline.store.store import Store, StoreError
from pipeline.store.work import Work


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe(Path("pipeline/recipes/tiny.yaml"))


def test_a_row_gives_a_stage_its_keys_its_work_and_its_place_among_variants(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = Stage(
        "corpora/{corpus}/lengths",
        lambda store, recipe, corpus: Work(f"corpora/{corpus}/lengths", "lengths-1", {"of": corpus}, {}),
        settings=lambda recipe: recipe.name,
    )
    monkeypatch.setattr(recipe_versions, "STAGES", (*STAGES, lengths))
    key = f"corpora/{recipe.corpus_names[0]}/lengths"
    assert made(recipe, (lengths,), recipe.corpus_names[0]) == [key]
    work = RecipeVersions(recipe).find(Store(tmp_path), key)
    assert isinstance(work, Work) and work.params == {"of": recipe.corpus_names[0]}
    assert stage_of(key) == lengths
    assert differing({"base": recipe, "renamed": recipe.model_copy(update={"name": "other"})}) == [lengths]


def test_a_stage_that_the_recipe_does_not_have_is_refused(tmp_path: Path, recipe: Recipe) -> None:
    corpus = recipe.corpus_names[0]
    for key in ("evaluation_ngrams", f"corpora/{corpus}/contamination", f"corpora/{corpus}/filters/own", "x"):
        with pytest.raises(StoreError, match=f"{key} is not a stage of the recipe"):
            RecipeVersions(recipe).find(Store(tmp_path), key)


def test_every_key_of_a_recipe_belongs_to_one_row(recipe: Recipe) -> None:
    for stage in STAGES:
        for key in stage.keys(recipe):
            assert [one for one in STAGES if one.names(key) is not None] == [stage]
    assert stage_of("training_runs") is None
