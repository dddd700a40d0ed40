"""What the small runs of a search for a mixture have in common, and what their losses are."""

import pytest

from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.steps.mixture_search.search import aimed_at, small
from tests.pipeline.steps.training.test_plan import recipe


def searching(**training: object) -> Recipe:
    found = recipe().model_dump(mode="json", by_alias=True)
    return Recipe.model_validate(found | {"mixture": {"search": {"training": training}}})


def test_small_runs_have_the_settings_of_the_search_and_search_no_further() -> None:
    written = searching(max_tokens=4096)
    found = small(written)
    assert found.training.max_tokens == found.training.evaluation.every_tokens == 4096
    assert written.training.max_tokens != 4096
    assert found.training.samples.prompts == []
    assert found.mixture.search is None
    with pytest.raises(RecipeError, match=r"mixture\.search\.training: max_tokens: must be"):
        small(searching(max_tokens=-1))


def test_the_target_weighs_the_losses_of_corpora() -> None:
    assert aimed_at({"a": 1.0, "b": 3.0}, None) == 2
    assert aimed_at({"a": 1.0, "b": 3.0}, {"a": 3, "b": 1}) == 1.5
