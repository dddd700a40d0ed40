"""Variants of a recipe: what each is, where the stages part, and what is refused with its place."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.recipe.recipe import RecipeError
from pipeline.recipe.variants import load, load_all
from pipeline.steps.recipe_versions import differing
from pipeline.store.variant_names import BASE

RECIPE: dict[str, Any] = {
    "name": "tiny",
    "corpora": [{"name": "books", "source": {"kind": "python_docs", "max_bytes": 1000}}, "tinystories:10"],
    "quality": "docs",
    "training": {
        "model": {"n_layers": 2, "d_model": 64, "n_heads": 2, "n_kv_heads": 1, "d_ff": 176},
        "seq_len": 64,
        "global_batch_tokens": 512,
        "micro_batch_size": 8,
        "max_tokens": 16_384,
        "optimizer": {"kind": "adamw", "lr": 3e-3},
        "schedule": {"kind": "cosine", "warmup_tokens": 2048},
        "checkpoint": {"every_tokens": 4096},
        "evaluation": {"every_tokens": 8192},
    },
}
FASTER = {"training": {"optimizer": {"lr": 0.01}}}
STRICT = {"quality": "gopher"}
MINE = {"name": "mine", "path": __file__}
WEIGHED = {"corpora": {"books": {"weight": 3}, "tinystories": {"weight": 1}}}


def written(directory: Path, **variants: Any) -> Path:
    path = directory / "recipe.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "variants": variants}))
    return path


def test_a_variant_is_the_recipe_with_its_overrides_under_a_name_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, faster=FASTER, weighed=WEIGHED)
    recipes = load_all(path)
    assert list(recipes) == [BASE, "faster", "weighed"]
    assert [recipe.variant for recipe in recipes.values()] == ["", "faster", "weighed"]
    assert [recipe.training.optimizer.lr for recipe in recipes.values()] == [0.003, 0.01, 0.003]
    assert recipes["weighed"].weights == {"books": 3, "tinystories": 1}
    assert recipes["weighed"].corpora[1].source == recipes[BASE].corpora[1].source
    assert load(path, "faster") == recipes["faster"]
    assert load(path, "faster", {"training": {"seed": 7}}).training.seed == 7


def test_variants_change_nothing_of_the_recipe_that_has_them(tmp_path: Path) -> None:
    with_them = load_all(written(tmp_path, faster=FASTER))[BASE].model_dump()
    assert with_them == load_all(written(tmp_path))[BASE].model_dump()


@pytest.mark.parametrize(
    ("variants", "stage"),
    [
        ({}, None),
        ({"faster": FASTER}, "pretrained_model"),
        ({"weighed": WEIGHED}, "pretrained_model"),
        ({"faster": FASTER, "strict": STRICT}, "quality"),
        ({"split": {"shards": {"validation_fraction": 0.2}}, "weighed": WEIGHED}, "token_shards"),
        ({"longer": {"corpora": {"books": {"source": {"max_bytes": 2000}}}}}, "raw"),
    ],
)
def test_stages_are_shared_up_to_the_first_that_a_variant_changes(
    tmp_path: Path, variants: dict[str, Any], stage: str | None
) -> None:
    stages = differing(load_all(written(tmp_path, **variants)))
    assert (stages[0].name if stages else None) == stage


@pytest.mark.parametrize(
    ("variants", "told"),
    [
        ({"x": {"trainin": {}}}, ".x: the recipe: unknown key 'trainin': did you mean 'training'?"),
        ({"x": {"training": {"optimizer": {"lr": -1}}}}, ".x: training.optimizer.lr: must be above 0"),
        ({"x": {"training": {"optimizer": {"lr": 0.003}}}}, ".x: makes the same as the recipe"),
        ({"x": {"corpora": {"web": {"weight": 1}}}}, ".x: corpora.web: no such corpus; choose from books"),
        ({"x": {"corpora": {"books": {"weight": 1}}}}, ".x: the recipe: corpus 'tinystories' has no weight"),
        ({"x": {"corpora": ["tinystories:10"]}}, ".x: overrides cannot add, remove or reorder corpora"),
        ({"x": FASTER, "y": FASTER}, ".y: makes the same as variants.x"),
        ({"x": {"launch": {"usd_per_hour": 2.0}}}, ".x: makes the same as the recipe"),
        ({"x": {}}, ".x: makes the same as the recipe"),
        ({"x": 3}, ".x: must be a mapping"),
        ({"X": FASTER}, ".X: must be lower-case letters"),
        ({"base": FASTER}, ": 'base' names the recipe as it is written"),
        ({"x": {"scrub": {"each": []}}}, ": x: `each` lists no values"),
        ({"x_1": FASTER, "x": {"seed": {"each": [1]}}}, ": x_1: two variants are named 'x_1'"),
        ({"x": {"training": {"optimizer": {"lr": {"each": [-1]}}}}}, ".x_1: training.optimizer.lr: must be"),
        ({"x": {"training": {"seed": {"each": [1, "1_"]}}}}, ": x: two variants are named 'x_1'"),
        ({"x": {"evaluation": {"benchmarks": []}}}, ".x: makes the same as the recipe"),
        ({"x": FASTER | {"evaluation": {"benchmarks": [MINE]}}}, ".x: `evaluation` is that of the recipe"),
        ({"x": FASTER | {"seeds": 0}}, ": x.seeds: must be a number from 1 to 1,000, not 0"),
        ({"x": FASTER | {"seeds": "3"}}, ": x.seeds: must be a number from 1 to 1,000, not '3'"),
        ({"x": FASTER | {"seeds": 100_000}}, ": x.seeds: must be a number from 1 to 1,000, not 100000"),
        ({"x": {"training": {"seed": "a"}, "seeds": 2}}, ".x: training.seed: must be a whole number"),
    ],
)
def test_a_wrong_variant_is_refused_with_its_place_in_the_file(
    tmp_path: Path, variants: dict[str, Any], told: str
) -> None:
    path = written(tmp_path, **variants)
    with pytest.raises(RecipeError) as refused:
        load_all(path)
    assert str(refused.value).startswith(f"{path}: variants{told}")


def test_seeds_are_variants_that_differ_in_the_seed_alone(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "seeds": 2, "variants": {"faster": FASTER | {"seeds": 3}}}))
    recipes = load_all(path)
    assert list(recipes) == [BASE, "base.2", "faster", "faster.2", "faster.3"]
    first = RECIPE["training"].get("seed", 0)
    assert [one.training.seed - first for one in recipes.values()] == [0, 1, 0, 1, 2]
    assert [one.training.optimizer.lr for one in recipes.values()] == [0.003, 0.003, 0.01, 0.01, 0.01]
    assert recipes["faster.3"].variant == "faster.3"
    assert differing(recipes)[0].name == "pretrained_model"
    assert load(path, "faster.2") == recipes["faster.2"]


def test_of_a_grid_with_seeds_the_recipe_itself_is_left_out_with_its_seeds(tmp_path: Path) -> None:
    each = {"training": {"optimizer": {"lr": {"each": [0.003, 0.01]}}}}
    path = tmp_path / "recipe.yaml"
    for seeds, grid, names in (
        (2, each, [BASE, "base.2", "lr_0_01", "lr_0_01.2"]),
        (1, each | {"seeds": 2}, [BASE, "lr_0_01", "lr_0_01.2"]),
    ):
        path.write_text(yaml.safe_dump({**RECIPE, "seeds": seeds, "variants": {"lr": grid}}))
        assert list(load_all(path)) == names


def test_a_seed_that_is_the_recipe_is_refused(tmp_path: Path) -> None:
    first = RECIPE["training"].get("seed", 0)
    path = written(tmp_path, before={"training": {"seed": first + 1}, "seeds": 2})
    assert list(load_all(path)) == [BASE, "before", "before.2"]
    path.write_text(path.read_text().replace(f"seed: {first + 1}", f"seed: {first}") + "seeds: 2\n")
    with pytest.raises(RecipeError, match=r"variants\.before: makes the same as the recipe"):
        load_all(path)


def test_seeds_change_nothing_of_the_recipe_that_has_them(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "seeds": 3}))
    assert load(path, BASE).model_dump() == load(written(tmp_path), BASE).model_dump()


def test_a_grid_is_a_variant_for_each_combination_but_that_of_the_recipe(tmp_path: Path) -> None:
    training = {"optimizer": {"lr": {"each": [0.003, "1e-3"]}}, "max_tokens": 8192}
    quality = {"each": ["docs", {"min_words": 9, "profile": "docs"}]}
    path = written(
        tmp_path,
        lr={"training": training},
        both={"quality": quality, "training": {"optimizer": {"lr": {"each": [0.003, 0.01]}}}},
    )
    recipes = load_all(path)
    made = {
        name: (one.training.optimizer.lr, one.training.max_tokens, one.quality.min_words)
        for name, one in recipes.items()
    }
    words = recipes[BASE].quality.min_words
    assert made == {
        BASE: (0.003, 16_384, words),
        "lr_0_003": (0.003, 8192, words),
        "lr_1e_3": (0.001, 8192, words),
        "both_docs_0_01": (0.01, 16_384, words),
        "both_min_words_9_profile_docs_0_003": (0.003, 16_384, 9),
        "both_min_words_9_profile_docs_0_01": (0.01, 16_384, 9),
    }
    assert load(path, "lr_1e_3") == recipes["lr_1e_3"]


def test_a_variant_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no variant is named 'fatser'; choose from base, faster"):
        load(written(tmp_path, faster=FASTER), "fatser")
