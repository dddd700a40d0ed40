"""A section of `post_training` is a recipe of its own, with the model of the recipe it belongs to."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.recipe import variants
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RecipeError
from pipeline.stages.quality import PROFILES
from pipeline.steps.model.evaluate import Evaluation
from pipeline.steps.recipe_versions import RecipeVersions, differing
from pipeline.steps.training.plan import PretrainedModel

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


def test_a_corpus_of_a_section_changes_the_rules_of_the_recipe_and_no_quality_rules(tmp_path: Path) -> None:
    """Its kinds of personal data leave the patterns of the recipe, and one threshold brings no others."""
    own: Any = {"scrub": {"kinds": ["email"]}, "quality": {"min_doc_words": 3}}
    patterns = [{"name": "employee", "regex": "EMP[0-9]{4}"}]
    section = {"sft": {"corpora": [TALKS | own, TALKS | {"name": "others"}]}}
    path = write(tmp_path, post_training=section, scrub={"patterns": patterns}, quality="docs")
    talks, others = map(variants.load(path, "sft").rules, ("talks", "others"))
    assert [one.name for one in talks.scrub.patterns] == ["employee"]
    assert [*map(str, talks.scrub.kinds)] == ["email"]
    none = PROFILES["none"].model_dump()
    assert (others.quality.model_dump(), talks.quality.model_dump()) == (none, none | {"min_doc_words": 3})


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
    assert training.schedule.warmup_tokens == round(10_240 * 0.1)
    assert sft.trained_for(1).training.max_tokens == 1024  # a single step would be at the learning rate 0
    own = tuned(tmp_path, "sft", sft={"corpora": [TALKS], "training": {"evaluation": {"every_tokens": 1024}}})
    assert own.trained_for(10_000).training.evaluation.every_tokens == 1024


def test_a_section_may_set_what_only_its_length_must_fit(tmp_path: Path) -> None:
    settings = {
        "schedule": {"kind": "cosine", "warmup_tokens": 5000},
        "averaging": {"half_life_tokens": 9000},
    }
    training = (
        tuned(tmp_path, "sft", sft={"corpora": [TALKS], "training": settings}).trained_for(10_000).training
    )
    training.check_length()
    assert (training.schedule.warmup_tokens, training.moving_average) == (5000, 9000)


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
            {"sft": {"corpora": [PAIRS]}},
            r"corpora\.0\.source\.format: is preferences, and sft learns from chat",
        ),
        ({"dpo": {"corpora": [TALKS]}}, r"corpora\.0\.source\.format: is chat, and dpo learns from pref"),
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


def test_a_variant_cannot_have_the_name_of_a_section(tmp_path: Path) -> None:
    section = {"sft": {"corpora": [TALKS]}}
    path = write(tmp_path, post_training=section, variants={"sft": {"training": {"seed": 2}}})
    with pytest.raises(RecipeError, match="rename the variant"):
        load_recipe(path)


HOT = {"post_training": {"sft": {"training": {"optimizer": {"lr": 3e-3}}}}}
BOTH = {"sft": {"corpora": [TALKS]}, "dpo": {"corpora": [PAIRS]}}


def parts(path: Path, section: str) -> str | None:
    """The first stage of a section that differs between variants."""
    stages = differing(variants.in_section(variants.load_all(path), section))
    return stages[0].name if stages else None


@pytest.mark.parametrize(
    ("variant", "pretraining", "sft", "dpo"),
    [
        (HOT, None, "pretrained_model", "pretrained_model"),
        ({"post_training": {"sft": {"epochs": 2}}}, None, "pretrained_model", "pretrained_model"),
        ({"post_training": {"sft": {"rehearsal": 0.1}}}, None, "pretrained_model", "pretrained_model"),
        ({"post_training": {"dpo": {"epochs": 2}}}, None, None, "pretrained_model"),
        ({"post_training": {"sft": {"validation_fraction": 0.2}}}, None, "token_shards", "pretrained_model"),
        (
            {"post_training": {"sft": {"corpora": {"talks": {"quality": "gopher"}}}}},
            None,
            "quality",
            "pretrained_model",
        ),
        (
            {"training": {"optimizer": {"lr": 0.01}}},
            "pretrained_model",
            "pretrained_model",
            "pretrained_model",
        ),
        ({"scrub": {"kinds": ["email"]}}, "scrubbed", "scrubbed", "scrubbed"),
    ],
)
def test_sections_of_variants_part_at_the_first_stage_that_differs(
    tmp_path: Path, variant: dict[str, Any], pretraining: str | None, sft: str | None, dpo: str | None
) -> None:
    path = write(tmp_path, post_training=BOTH, variants={"hot": variant})
    assert [parts(path, section) for section in ("", "sft", "dpo")] == [pretraining, sft, dpo]


def test_the_section_of_a_variant_has_a_name_of_its_own_and_goes_on_with_the_variant(tmp_path: Path) -> None:
    path = write(tmp_path, post_training=BOTH, variants={"hot": HOT})
    sft, dpo = variants.load(path, "hot/sft"), variants.load(path, "hot/dpo")
    assert (sft.variant, sft.section, sft.base.variant, dpo.base.variant) == (
        "hot/sft",
        "sft",
        "hot",
        "hot/sft",
    )
    assert sft.training.optimizer.lr == 3e-3
    assert variants.load(path, "sft").training.optimizer.lr == 2e-5
    assert sft.trained_for(10_000).variant == "hot/sft"
    names = [RecipeVersions(variants.load(path, one)).name for one in ("hot", "hot/sft", "sft", "hot/dpo")]
    assert len({name.directory for name in names}) == 4
    assert all("/" not in name.directory for name in names)
    with pytest.raises(
        RecipeError, match=r"no variant is named 'hot/stf'; choose from .*, hot/sft, hot/dpo$"
    ):
        variants.load(path, "hot/stf")


def test_seeds_change_those_of_the_sections_too(tmp_path: Path) -> None:
    sections = {**BOTH, "dpo": {"corpora": [PAIRS], "training": {"seed": 7}}}
    own = {"post_training": {"sft": {"training": {"seed": 40}}}, "seeds": 3}
    path = write(tmp_path, post_training=sections, seeds=2, variants={"own": own})
    recipes = variants.load_all(path)
    seeds = {
        name: [recipe.training.seed, *(recipe.tuned(section).training.seed for section in ("sft", "dpo"))]
        for name, recipe in recipes.items()
    }
    assert seeds == {
        "base": [0, 0, 7],
        "base.2": [1, 1, 8],
        "own": [0, 40, 7],
        "own.2": [1, 41, 8],
        "own.3": [2, 42, 9],
    }


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ({"sft": None}, "add or remove sections of post_training"),
        ({"sft": {"corpora": [TALKS, {**TALKS, "name": "more"}]}}, r"corpora of post_training\.sft, because"),
        ({"sft": {"corpora": {"other": {"weight": 1}}}}, "corpora.other: no such corpus; choose from talks"),
        ({"sft": {"training": {"optimizer": {"lr": 2e-5}}}}, "makes the same as the recipe"),
        ({"sft": {"training": {"threads": 1}}}, "makes the same as the recipe"),
        ({"sft": {"training": {"model": "small"}}}, "training.model follows from the recipe"),
    ],
)
def test_a_variant_that_changes_the_graph_or_nothing_of_a_section_is_refused(
    tmp_path: Path, variant: dict[str, Any], said: str
) -> None:
    path = write(tmp_path, post_training=BOTH, variants={"x": {"post_training": variant}})
    with pytest.raises(RecipeError, match=rf"variants\.x: .*{said}"):
        variants.load_all(path)


def test_in_a_section_only_variants_that_differ_there_are_compared(tmp_path: Path) -> None:
    of_dpo = {"post_training": {"dpo": {"epochs": 2}}, "seeds": 2}
    path = write(tmp_path, post_training=BOTH, seeds=3, variants={"hot": {**HOT, "seeds": 1}, "more": of_dpo})
    recipes = variants.load_all(path)
    base = ["base", "base.2", "base.3"]
    assert list(variants.distinct(recipes)) == base
    assert list(variants.distinct(recipes, "sft")) == [*base, "hot"]
    assert list(variants.distinct(recipes, "dpo")) == [*base, "hot", "more", "more.2"]


def test_a_section_may_hold_out_another_share_of_its_conversations(tmp_path: Path) -> None:
    shared = tuned(tmp_path, "sft", sft={"corpora": [TALKS]})
    own = tuned(tmp_path, "sft", sft={"corpora": [TALKS], "validation_fraction": 0.2})
    assert shared.shards.validation_fraction == own.pretraining.shards.validation_fraction == 0.02
    assert own.shards.validation_fraction == 0.2
    with pytest.raises(RecipeError, match=r"post_training.sft.validation_fraction: must be below 0.5"):
        tuned(tmp_path, "sft", sft={"corpora": [TALKS], "validation_fraction": 0.6})


def test_longer_answers_are_asked_for_without_another_training(tmp_path: Path) -> None:
    usual, long = (
        tuned(tmp_path, "sft", sft={"corpora": [TALKS], **own}) for own in ({}, {"answer_tokens": 300})
    )
    assert PretrainedModel(usual).deciding == PretrainedModel(long).deciding
    assert Evaluation(usual).deciding != Evaluation(long).deciding
