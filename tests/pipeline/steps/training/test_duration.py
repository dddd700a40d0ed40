"""How many tokens a recipe trains on whose length is given in minutes."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.recipe.duration import DurationParams
from pipeline.recipe.recipe import Recipe
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.training import duration
from pipeline.store.store import Store
from tests.integration.project import TRAINING

LIMITS = {"minutes": 3, "min_tokens": 4_096, "max_tokens": 49_152}


def recipe(length: dict[str, Any] | None, **training: Any) -> Recipe:
    without = {name: value for name, value in TRAINING.items() if name != "max_tokens"}
    corpora = [{"name": "first", "source": {"kind": "files", "paths": ["first.jsonl"]}}]
    settings = {"name": "mine", "corpora": corpora, "training": without | training}
    return Recipe.model_validate(settings | ({"duration": length} if length else {}))


@pytest.mark.parametrize(
    ("tokens_per_second", "tokens"), [(0.1, 4_096), (100, 16_384), (101, 16_384), (1e6, 49_152)]
)
def test_the_length_follows_the_speed_between_its_bounds_in_whole_batches(
    tokens_per_second: float, tokens: int
) -> None:
    assert duration.tokens_in(DurationParams(**LIMITS), tokens_per_second, batch=512) == tokens


def test_a_recorded_length_holds_and_everything_in_tokens_shrinks_with_it(tmp_path: Path) -> None:
    mine = recipe(LIMITS)
    store = Store(tmp_path, RecipeVersions(mine))
    assert duration.resolved(store, mine).training.max_tokens == 49_152
    store.record_fact(duration.fact(mine), "24576")
    training = duration.resolved(Store(tmp_path, RecipeVersions(mine)), mine).training
    assert training.max_tokens == 24_576
    assert (training.checkpoint.every_tokens, training.evaluation.every_tokens) == (2_048, 4_096)
    assert training.schedule.warmup_tokens == 1_024
    # another speed or another wish, so a measurement of its own
    for other in (recipe(LIMITS | {"minutes": 4}), recipe(LIMITS, seq_len=32, micro_batch_size=16)):
        assert duration.resolved(store, other).training.max_tokens == 49_152
    assert duration.resolved(store, recipe(LIMITS, log_every_steps=3)).training.max_tokens == 24_576


def test_a_damaged_record_of_the_length_counts_as_none(tmp_path: Path) -> None:
    mine = recipe(LIMITS)
    store = Store(tmp_path, RecipeVersions(mine))
    store.record_fact(duration.fact(mine), "24v76")
    assert duration.recorded(store, mine) is None
    assert duration.resolved(store, mine).training.max_tokens == 49_152


def test_the_longest_training_is_the_one_without_a_duration(tmp_path: Path) -> None:
    mine = recipe(LIMITS)
    longest = duration.resolved(Store(tmp_path, RecipeVersions(mine)), mine)
    assert longest.model_dump() == recipe(None, max_tokens=49_152).model_dump()


def test_a_number_of_tokens_set_by_hand_turns_the_duration_off() -> None:
    mine = recipe(LIMITS, max_tokens=8_192)
    assert (mine.duration, mine.training.max_tokens) == (None, 8_192)


@pytest.mark.parametrize(
    ("length", "training", "said"),
    [
        (LIMITS | {"min_tokens": 50_000}, {}, "min_tokens 50000 is more than max_tokens 49152"),
        (LIMITS | {"max_tokens": 50_000}, {}, "not a multiple of global_batch_tokens"),
        (LIMITS | {"minutes": 0}, {}, "greater than 0"),
        ({"minutes": 3}, {}, "min_tokens"),
        (None, {}, "max_tokens"),
        (LIMITS, {"averaging": {"kind": "ema", "half_life_tokens": 512}}, "set training.max_tokens instead"),
    ],
)
def test_a_length_that_cannot_be_is_refused(
    length: dict[str, Any] | None, training: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        recipe(length, **training)
