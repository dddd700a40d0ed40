"""What the Launchpad's fields say of a run."""

from pipeline.assets.operations.launchpad import differences


def test_only_the_settings_that_differ_from_the_recipe_are_named_with_their_paths() -> None:
    recipe = {
        "training": {"seed": 1, "optimizer": {"lr": 0.003, "kind": "adamw"}},
        "quality": {"min_words": 5},
    }
    given = {
        "training": {"seed": 1, "optimizer": {"lr": 0.01, "kind": "adamw"}, "samples": {"prompts": ["a"]}},
        "quality": {"profile": "docs"},
    }
    assert differences(given, recipe) == {
        "training.optimizer.lr": "0.01",
        "training.samples.prompts": '["a"]',
        "quality.profile": "docs",
    }
