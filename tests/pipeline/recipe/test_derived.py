"""What follows from other settings is computed, and never counts as given: a derived recipe equals one that a
person wrote out with the same numbers.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.overrides import merged
from pipeline.recipe.post_training import EVALUATIONS, RATES
from pipeline.recipe.recipe import RECIPES, Recipe
from pipeline.steps.mixture_search.search import small
from trainer.config import TrainingConfig

SHIPPED = sorted(path.stem for path in RECIPES.glob("*.yaml"))
TALKS = {"name": "talks", "source": {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}}
PAIRS = {"name": "pairs", "source": {"kind": "files", "paths": ["pairs.jsonl"], "format": "preferences"}}
STEP = 512

SCHEDULES = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["cosine", "linear"])},
        optional={"warmup_tokens": st.integers(0, 40 * STEP), "min_lr_ratio": st.floats(0, 1)},
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "warmup_tokens": st.integers(0, 10 * STEP),
            "decay_fraction": st.floats(0.01, 0.8),
            "decay": st.sampled_from(["linear", "sqrt"]),
        },
    ),
)
OPTIMIZERS = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["muon", "adamw"]),
        "lr": st.floats(1e-5, 1e-1),
        "weight_decay": st.floats(0, 1),
        "groups": st.just([{"pattern": "*norm*", "lr_multiplier": 2}]),
    },
)
TRAININGS = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries(
            {"n_layers": st.just(1), "d_model": st.just(32), "n_heads": st.just(2)}
            | {"n_kv_heads": st.just(2), "d_ff": st.just(64)},
            optional={"head_dim": st.just(8), "tie_embeddings": st.booleans(), "qk_norm": st.booleans()},
        ),
        "seq_len": st.just(64),
        "global_batch_tokens": st.just(STEP),
        "max_tokens": st.integers(50, 200).map(lambda steps: steps * STEP),
        "checkpoint": st.just({"every_tokens": STEP}),
        "evaluation": st.just({"every_tokens": STEP}),
    },
    optional={
        "schedule": SCHEDULES,
        "optimizer": OPTIMIZERS,
        "averaging": st.fixed_dictionaries({"half_life_tokens": st.integers(1, 50 * STEP)}),
        "dropout": st.just(0.1),
        "micro_batch_size": st.sampled_from([2, 8]),
    },
)
SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "optimizer": OPTIMIZERS,
        "schedule": st.fixed_dictionaries(
            {"kind": st.just("linear")}, optional={"min_lr_ratio": st.just(0.5)}
        ),
        "evaluation": st.just({"every_tokens": 3 * STEP}),
        "checkpoint": st.just({"every_tokens": STEP}),
    },
)


def recipe_of(training: dict[str, Any], **sections: Any) -> dict[str, Any]:
    corpora = [{"name": "docs", "source": {"kind": "python_docs"}}]
    return {"name": "mine", "corpora": corpora, "tokenizer": {"chat": True}, "training": training, **sections}


def numbers(training: TrainingConfig) -> dict[str, Any]:
    return training.model_dump(mode="json")


def written_out(training: dict[str, Any]) -> TrainingConfig:
    return TrainingConfig.model_validate(training)


def check_section(written: dict[str, Any], section: str, tokens: int) -> None:
    """The training of a section equals one that says in full what docs/recipe.md and docs/chat.md promise."""
    base = Recipe.model_validate(written)
    own = written["post_training"][section].get("training", {})
    tuned = base.tuned(section).trained_for(tokens).training
    step = own.get("global_batch_tokens", base.training.global_batch_tokens)
    length = max(2, -(-tokens // step)) * step
    often = {"every_tokens": max(step, length // EVALUATIONS)}
    expected = {
        "model": numbers(base.training)["model"],
        "objective": section,
        "seq_len": base.training.seq_len,
        "global_batch_tokens": step,
        "max_tokens": length,
        "micro_batch_size": base.training.micro_batch_size,
        "seed": base.training.seed,
        "log_every_steps": base.training.log_every_steps,
        "parallel": numbers(base.training)["parallel"],
        "precision": base.training.precision,
        "compile": base.training.compile,
        "attention": base.training.attention,
        "activation_checkpointing": base.training.activation_checkpointing,
        "evaluation": often,
        "checkpoint": often,
        **own,
        "optimizer": {"kind": "adamw", "lr": RATES[section], **own.get("optimizer", {})},
    }
    schedule = dict(own.get("schedule", {}))
    beta2 = tuned.optimizer.betas[1]
    schedule.setdefault("warmup_tokens", round(min(2 / (1 - beta2) * step, 0.1 * length)))
    assert numbers(tuned) == numbers(written_out(expected | {"schedule": schedule}))


def check_small_run(recipe: Recipe, training: dict[str, Any], tokens: int) -> None:
    """A small run of a mixture's search equals one that has the recipe's numbers over fewer tokens."""
    share = tokens / recipe.training.max_tokens
    expected = merged(yaml.safe_load(yaml.safe_dump(training)), {"max_tokens": tokens})
    for name in ("stages", "sinks"):
        expected.pop(name, None)
    for section, name in (("schedule", "warmup_tokens"), ("averaging", "half_life_tokens")):
        if length := expected.get(section, {}).get(name):
            expected[section][name] = max(1, round(length * share))
    expected["samples"] = {"prompts": []}
    expected["checkpoint"] |= {"every_tokens": tokens, "keep_last": 1, "keep_every_tokens": None}
    expected["evaluation"] |= {"every_tokens": tokens}
    assert numbers(small(recipe).training) == numbers(written_out(expected))


def check_dump(recipe: Recipe) -> None:
    """A dump, as a lineage holds it, is read again and says the same."""
    dump = recipe.model_dump(mode="json", by_alias=True)
    again = Recipe.model_validate(yaml.safe_load(yaml.safe_dump(dump)))
    assert again.model_dump(mode="json", by_alias=True) == dump


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_derived_from_a_shipped_recipe_equals_what_is_written_out(name: str) -> None:
    path = RECIPES / f"{name}.yaml"
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    recipe = load_recipe(path)
    check_dump(recipe)
    for section in recipe.post_training.sections:
        for tokens in (1, 270_336, 524_288):
            check_section(written, section, tokens)
    step = recipe.training.global_batch_tokens
    tokens = -(-1_000_000 // step) * step
    searching = load_recipe(path, {"mixture": {"search": {"training": {"max_tokens": tokens}}}})
    check_small_run(searching, written["training"], tokens)


@settings(max_examples=60, deadline=None)
@given(TRAININGS, SECTIONS, SECTIONS, st.integers(1, 200_000), st.integers(5, 40))
def test_what_is_derived_from_a_random_recipe_equals_what_is_written_out(
    training: dict[str, Any], sft: dict[str, Any], dpo: dict[str, Any], tokens: int, steps: int
) -> None:
    sections = {"sft": {"corpora": [TALKS], "training": sft}, "dpo": {"corpora": [PAIRS], "training": dpo}}
    search = {"mixture": {"search": {"training": {"max_tokens": steps * STEP}}}}
    written = recipe_of(training, post_training=sections, **search)
    recipe = Recipe.model_validate(written)
    check_dump(recipe)
    check_section(written, "sft", tokens)
    check_section(written, "dpo", tokens)
    check_small_run(recipe, training, steps * STEP)
    changed = {"training": {"max_tokens": 300 * STEP}}
    variant = Recipe.model_validate(merged(written, changed))
    assert numbers(variant.training) == numbers(written_out(training | changed["training"]))


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "files", "paths": ["a.jsonl"], "format": "chat"},
        {"kind": "files", "paths": ["a.jsonl"], "format": "preferences"},
        {"kind": "files", "paths": ["a.jsonl"], "text_template": "{title}: {body}"},
        {"kind": "hub", "name": "some/talks", "format": "chat"},
        {"kind": "hub", "name": "some/pairs", "format": "preferences"},
        {"kind": "hub", "name": "some/texts", "text_template": "{title}: {body}"},
        {"kind": "hub", "name": "some/texts", "document_start": "= [^=]+ ="},
    ],
)
def test_a_lineage_with_all_defaults_of_a_source_is_a_recipe_again(source: dict[str, Any]) -> None:
    recipe = Recipe.model_validate(
        recipe_of(
            {"model": "tiny", "seq_len": 64, "global_batch_tokens": 512, "max_tokens": 5120}
            | {"checkpoint": {"every_tokens": 512}, "evaluation": {"every_tokens": 512}}
        )
        | {"corpora": [{"name": "c", "source": source}]}
    )
    check_dump(recipe)


def test_an_adapter_in_a_section_is_read_and_without_weights_to_adapt_refused(tmp_path: Path) -> None:
    lora = {"lora": {"rank": 8}, "optimizer": {"kind": "adamw"}}
    recipe = load_recipe(RECIPES / "default.yaml", {"post_training": {"sft": {"training": lora}}})
    assert recipe.tuned("sft").training.lora.rank == 8
    with pytest.raises(Exception, match=r"training\.lora needs pretrained weights"):
        load_recipe(RECIPES / "default.yaml", {"training": lora | {"objective": "sft"}})
