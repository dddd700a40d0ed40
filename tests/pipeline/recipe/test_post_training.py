"""A section of `post_training` is a recipe of its own, with the model of the recipe it belongs to."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.recipe import variants
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RecipeError

TALKS = {"name": "talks", "source": {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}}
PAIRS = {"name": "pairs", "source": {"kind": "files", "paths": ["pairs.jsonl"], "format": "preferences"}}


def write(tmp_path: Path, **sections: Any) -> Path:
    recipe = {
        "name": "mine",
        "corpora": [{"name": "docs", "source": {"kind": "python_docs"}}],
        "tokenizer": {"vocab_size": 512, "chat": True},
        "training": {
            "model": "tiny",
            "seq_len": 64,
            "global_batch_tokens": 512,
            "max_tokens": 5120,
            "optimizer": {"kind": "muon"},
            "checkpoint": {"every_tokens": 512},
            "evaluation": {"every_tokens": 512},
        },
        **sections,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


def tuned(tmp_path: Path, section: str, **sections: Any) -> Any:
    return variants.load(write(tmp_path, post_training=sections), section)


def test_a_section_has_the_model_of_the_recipe_and_settings_of_its_own(tmp_path: Path) -> None:
    sft = tuned(tmp_path, "sft", sft={"corpora": [TALKS], "training": {"optimizer": {"lr": 1e-4}}})
    base = load_recipe(tmp_path / "recipe.yaml")
    assert sft.training.model == base.training.model
    assert sft.training.seq_len == 64
    assert (sft.training.objective, sft.training.optimizer.kind, sft.training.optimizer.lr) == (
        "sft",
        "adamw",
        1e-4,
    )
    assert sft.corpus_names == ["talks"]
    assert sft.tokenizer == base.tokenizer
    assert sft.shard_params.longest == 65
    assert base.shard_params.longest is None


def test_dpo_goes_on_with_sft_or_else_with_the_pretrained_model(tmp_path: Path) -> None:
    dpo = tuned(tmp_path, "dpo", sft={"corpora": [TALKS]}, dpo={"corpora": [PAIRS]})
    assert (dpo.base.section, dpo.base.base.section) == ("sft", "")
    assert tuned(tmp_path, "dpo", dpo={"corpora": [PAIRS]}).base.section == ""


def test_a_model_that_was_pretrained_without_control_tokens_gets_them(tmp_path: Path) -> None:
    path = write(tmp_path, tokenizer={"vocab_size": 512}, post_training={"sft": {"corpora": [TALKS]}})
    assert variants.load(path, "sft").tokenizer.chat == "appended"
    path = write(tmp_path, tokenizer={"from": "there"}, post_training={"sft": {"corpora": [TALKS]}})
    assert variants.load(path, "sft").tokenizer.chat is True


def test_its_length_is_whole_steps_with_as_many_evaluations(tmp_path: Path) -> None:
    sft = tuned(tmp_path, "sft", sft={"corpora": [TALKS]})
    training = sft.trained_for(10_000).training
    assert training.max_tokens == 10_240
    assert training.evaluation.every_tokens == training.checkpoint.every_tokens == 2560
    assert training.schedule.warmup_tokens == round(10_240 * 0.02)
    own = tuned(tmp_path, "sft", sft={"corpora": [TALKS], "training": {"evaluation": {"every_tokens": 1024}}})
    assert own.trained_for(10_000).training.evaluation.every_tokens == 1024


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"sft": {"corpora": [TALKS], "training": {"model": "small"}}},
            "training.model follows from the recipe",
        ),
        (
            {"sft": {"corpora": [TALKS], "training": {"lr": 1}}},
            r"post_training\.sft: training: unknown key 'lr'",
        ),
        ({"sft": {"corpora": [TALKS], "rehearsal": 1}}, r"rehearsal: must be below 1"),
        ({"sft": {"corpora": []}}, r"post_training\.sft\.corpora"),
        ({"dpo": {"corpora": [PAIRS], "rehearsal": 0.1}}, "unknown key 'rehearsal'"),
        (
            {"dpo": {"corpora": [PAIRS], "training": {"parallel": {"pp": 2}}}},
            "dpo cannot be split by parallel.pp",
        ),
    ],
)
def test_what_does_not_fit_is_said_when_the_recipe_is_read(
    tmp_path: Path, section: dict[str, Any], said: str
) -> None:
    with pytest.raises(RecipeError, match=said):
        load_recipe(write(tmp_path, post_training=section))


def test_a_variant_cannot_have_the_name_of_a_section_or_sections_of_its_own(tmp_path: Path) -> None:
    section = {"sft": {"corpora": [TALKS]}}
    path = write(tmp_path, post_training=section, variants={"sft": {"training": {"seed": 2}}})
    with pytest.raises(RecipeError, match="rename the variant"):
        load_recipe(path)
    path = write(
        tmp_path, post_training=section, variants={"other": {"post_training": {"sft": {"epochs": 2}}}}
    )
    with pytest.raises(RecipeError, match=r"variants\.other: `post_training` is of the recipe itself alone"):
        variants.load_all(path)
