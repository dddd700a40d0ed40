"""Which run a recipe means, and that what is said of a model is what it was made from."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.sections import SearchParams, ShardParams
from pipeline.stages.dedup import DedupParams
from pipeline.steps.lineage.checkpoints import planned
from pipeline.steps.model.model_card import model_card
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.training import plan
from pipeline.steps.training.effort import Effort
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import ENGINE, SETTINGS, TEXTS, prepare
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer
from trainer.config import PretrainedConfig

HELD_OUT = ShardParams(validation_fraction=0.2)
EVALUATION: dict[str, Any] = {
    "bits_per_byte": 3.0,
    "perplexity": 1234.56,
    "held_out_bytes": 10,
    "compressors": {"xz -9": 2.0},
    "per_corpus": {},
    "samples": [],
}


def recipe(*names: str, **training: Any) -> Recipe:
    corpora = [
        {"name": name, "source": {"kind": "files", "paths": [f"{name}.jsonl"]}}
        for name in names or ("first", "second")
    ]
    return Recipe.model_validate(
        {
            "name": "mine",
            **SETTINGS,
            "corpora": corpora,
            "shards": HELD_OUT,
            "tokenizer": {"vocab_size": 400},
            "training": TRAINING | training,
        }
    )


def make_shards(store: Store, recipe: Recipe) -> None:
    deduplicate(store, ENGINE, recipe.corpus_names, recipe.dedup)
    tokenizer(store, ENGINE, recipe.name, recipe.corpus_names, recipe.tokenizer, HELD_OUT.validation_fraction)
    for name in recipe.corpus_names:
        tokenize(store, ENGINE, name, HELD_OUT)


def finish(store: Store, run: plan.PlannedRun, seconds: float = 1.0) -> Version:
    """Publishes a run as if its trainer had said that it is done."""
    checkpoint = run.config.run_dir / "checkpoints" / "step-00000032"
    checkpoint.mkdir(parents=True)
    said = {
        "step": 32,
        "tokens": 16_384,
        "loss": 5.0,
        "validation_loss": 5.0,
        "perplexity": 148.4,
        "bits_per_byte": 3.0,
        "data_version": run.name,
        "path": str(checkpoint),
    }
    return plan.finish(store, run, said, seconds)


def test_a_search_for_a_mixture_changes_no_training(store: Store) -> None:
    written = recipe()
    searching = written.mixture.model_copy(update={"search": SearchParams()})
    changed = written.model_copy(update={"mixture": searching})
    assert plan.PretrainedModel(changed).work(store) == plan.PretrainedModel(written).work(store)


def test_a_mean_of_checkpoints_is_another_model_of_the_same_training(store: Store) -> None:
    plain = recipe()
    averaged = [recipe(averaging={"checkpoints": number}) for number in (2, 3)]
    runs = {plan.plan(store, one).config.run_dir for one in (plain, *averaged)}
    works = {plan.PretrainedModel(one).work(store).name for one in (plain, *averaged)}
    assert len(runs) == 1 and len(works) == 3
    trained = plan.training_work(store, plan.settled(store, averaged[0]))
    assert trained == plan.PretrainedModel(plain).work(store)


def test_going_back_to_a_finished_run_makes_its_model_the_one_in_use(store: Store) -> None:
    one, other = plan.plan(store, recipe(seed=1)), plan.plan(store, recipe(seed=2))
    model = finish(store, one)
    finish(store, other)
    found = plan.finished(store, one.work)
    assert found is not None and found.path == store.current(keys.PRETRAINED_MODEL).path == model.path
    assert plan.result(store, found)["run_dir"] == one.config.run_dir


def test_a_training_keeps_the_name_with_which_it_began(store: Store) -> None:
    begun = plan.plan(store, recipe(seed=21), "first try")
    assert begun.config.name == f"first try {begun.name}"
    begun.write_config()
    assert plan.plan(store, recipe(seed=21), "again").config.name == begun.config.name
    begun.config_path.write_text("not a configuration")
    assert plan.plan(store, recipe(seed=21)).config.name == f"{recipe().name} {begun.name}"


def test_the_seconds_of_a_model_are_those_of_its_trainer(store: Store) -> None:
    model = finish(store, plan.plan(store, recipe(seed=9)), seconds=5000)
    assert 5000 <= model.seconds < 5060


def test_a_run_whose_checkpoint_is_gone_is_not_taken_for_finished(store: Store) -> None:
    run = plan.plan(store, recipe())
    model = finish(store, run)
    plan.result(store, model)["checkpoint"].rmdir()
    assert plan.finished(store, run.work) is None


def test_only_what_decides_the_weights_makes_another_run(store: Store) -> None:
    run = plan.plan(store, recipe())
    again = plan.plan(
        store,
        recipe(
            checkpoint={"every_tokens": 512, "keep_last": 9},
            samples={"prompts": ["x"]},
            threads=2,
            log_every_steps=7,
        ),
    )
    assert again.config.run_dir == run.config.run_dir
    assert plan.plan(store, recipe(seed=9)).config.run_dir != run.config.run_dir


def test_weights_to_go_on_from_lie_beside_the_recipe_and_decide_the_run_by_what_they_hold(
    store: Store, tmp_path: Path
) -> None:
    path, weights = tmp_path / "mine.yaml", tmp_path / "base"
    weights.mkdir()
    (weights / "config.json").write_text("{}")

    def run(place: str = "base") -> plan.PlannedRun:
        path.write_text(yaml.safe_dump(recipe(pretrained={"path": place}).model_dump(mode="json")))
        return plan.plan(store, load_recipe(path))

    with pytest.raises(PipelineError, match=r"base does not hold \*\.safetensors files"):
        run()
    (weights / "model.safetensors").write_bytes(b"one")
    before = run()
    assert before.config.training.pretrained == PretrainedConfig(path=weights)
    assert str(tmp_path) not in json.dumps(before.config.lineage)
    weights.rename(tmp_path / "moved")
    assert run("moved").config.run_dir == before.config.run_dir != plan.plan(store, recipe()).config.run_dir
    (tmp_path / "moved" / "model.safetensors").write_bytes(b"two")
    assert run("moved").config.run_dir != before.config.run_dir


def test_the_order_of_the_corpora_changes_nothing_in_training(store: Store) -> None:
    run = plan.plan(store, recipe())
    make_shards(store, recipe("second", "first"))
    other = plan.plan(store, recipe("second", "first"))
    assert other.config.run_dir == run.config.run_dir
    assert other.config.data == run.config.data


def another_run(store: Store, directory: Path, **changes: Any) -> tuple[Store, Recipe]:
    """The store as a run of the recipe sees it, with changes to the recipe."""
    path = directory / "mine.yaml"
    path.write_text(yaml.safe_dump(recipe().model_dump(mode="json") | changes))
    changed = load_recipe(path)
    return Store(store.root, RecipeVersions(changed)), changed


def test_a_section_of_next_to_no_text_takes_a_step(store: Store) -> None:
    make_shards(store, recipe("first"))
    source = {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}
    corpora = [{"name": "first", "source": source}]
    written = recipe("second").model_dump(mode="json", by_alias=True)
    for epochs, steps in ((1e-9, 1), (1.0, 2)):
        changed = Recipe.model_validate(
            written | {"post_training": {"sft": {"corpora": corpora, "epochs": epochs}}}
        )
        shards = {"first": store.current(keys.token_shards("first"))}
        assert plan.with_length(changed.tuned("sft"), shards, epochs).training.steps >= steps


@pytest.mark.parametrize(
    ("training", "said"),
    [
        (
            {"schedule": {"warmup_tokens": 10**9}},
            r"schedule\.warmup_tokens 1000000000 .* do not fit into the",
        ),
        ({"averaging": {"half_life_tokens": 10**9}}, r"averaging\.half_life_tokens 1000000000 is more than"),
        ({"averaging": {"checkpoints": 10**6}}, r"averaging\.checkpoints 1000000: .* has only"),
    ],
)
def test_settings_that_do_not_fit_the_length_of_a_section_are_told(
    store: Store, monkeypatch: pytest.MonkeyPatch, training: dict[str, Any], said: str
) -> None:
    make_shards(store, recipe("first"))
    source = {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}
    section = {"corpora": [{"name": "first", "source": source}], "training": training}
    written = recipe("second").model_dump(mode="json", by_alias=True)
    sft = Recipe.model_validate(written | {"post_training": {"sft": section}}).tuned("sft")
    shards = {"first": store.current(keys.token_shards("first"))}
    sft = plan.with_length(sft, shards, 1.0)
    # Its base model, whose training takes a minute, decides nothing here.
    monkeypatch.setattr(plan, "settled", lambda *_: plan.Settled(sft, shards, sft.training))
    with pytest.raises(PipelineError, match=rf"^post_training\.sft\.training\.{said}"):
        plan.plan(store, sft)


def test_a_model_that_is_missing_is_compared_with_one_of_the_same_text_only(store: Store) -> None:
    first, second = recipe("first"), recipe("second")
    for one in (first, second):
        make_shards(store, one)
    finish(store, plan.plan(store, first))

    def said(wanted: Recipe) -> str:
        with pytest.raises(StoreError) as missing:
            Store(store.root, RecipeVersions(wanted)).current(keys.PRETRAINED_MODEL)
        return str(missing.value)

    assert "for this recipe yet, the newest version has other settings" in said(recipe("first", seed=9))
    first = "materialize it (for example with the job `pretrain`) first"
    assert said(second) == f"pretrained_model has not been made yet: {first}"


@pytest.mark.parametrize(
    ("section", "key", "job"),
    [
        ("", keys.MIXTURE_SEARCH, "search_mixture"),
        ("sft", keys.raw("talks"), "sft"),
        ("", keys.raw("new"), "pretrain"),
    ],
)
def test_what_is_missing_is_told_with_a_job_that_makes_it(
    section: str, key: keys.Key, job: str, store: Store
) -> None:
    make_shards(store, recipe())
    talks = {"name": "talks", "source": {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}}
    new = ["first", "second"] if key == keys.MIXTURE_SEARCH else ["new"]
    written = recipe(*new).model_dump(mode="json", by_alias=True)
    written |= {"mixture": {"search": {"runs": 5}}, "post_training": {"sft": {"corpora": [talks]}}}
    wanted = Recipe.model_validate(written)
    wanted = wanted.tuned(section) if section else wanted
    with pytest.raises(StoreError, match=rf"^{key} has not been made yet: .* the job `{job}`\) first$"):
        Store(store.root, RecipeVersions(wanted)).current(key)


def test_shards_of_other_documents_than_those_read_last_are_not_trained_on(
    store: Store, tmp_path: Path
) -> None:
    before = plan.plan(*another_run(store, tmp_path))
    prepare(another_run(store, tmp_path)[0], tmp_path / "first.jsonl", TEXTS[:9])
    with pytest.raises(
        StoreError,
        match=r"corpora/first/signatures has not been made for this recipe yet, the newest version has other "
        r"inputs \(corpora/first/scrubbed, corpora/first/quality\): materialize dedup \(for example with",
    ):
        plan.plan(*another_run(store, tmp_path))
    make_shards(*another_run(store, tmp_path))
    assert plan.plan(*another_run(store, tmp_path)).work != before.work


def test_a_run_trains_on_the_shards_of_its_own_settings_whatever_others_made(
    store: Store, tmp_path: Path
) -> None:
    before = plan.plan(*another_run(store, tmp_path))
    other = recipe().model_copy(update={"dedup": DedupParams(threshold=0.5)})
    make_shards(store, other)
    assert plan.plan(*another_run(store, tmp_path)).config == before.config
    theirs = plan.plan(*another_run(store, tmp_path, dedup={"threshold": 0.5}))
    assert theirs.config.data != before.config.data
    with pytest.raises(StoreError, match=r"signatures has not been made .* other settings \(threshold\)"):
        plan.plan(*another_run(store, tmp_path, dedup={"threshold": 0.6}))


def test_shards_are_used_again_when_dedup_decides_the_same_again(store: Store, tmp_path: Path) -> None:
    before = plan.plan(*another_run(store, tmp_path))
    changed, theirs = another_run(store, tmp_path, dedup={"threshold": 0.79})
    deduplicate(changed, ENGINE, theirs.corpus_names, theirs.dedup)
    again = plan.plan(*another_run(store, tmp_path, dedup={"threshold": 0.79}))
    assert again.config.data == before.config.data


def test_a_model_card_describes_the_documents_that_the_model_was_made_from(
    store: Store, tmp_path: Path
) -> None:
    lineage = planned(plan.plan(store, recipe(samples={"prompts": ['Say "']})).config, 32).lineage
    lineage["training"]["libraries"] = {"torch": "2.13.0"}
    prepare(store, tmp_path / "first.jsonl", TEXTS[:9])
    sample = {"prompt": 'Say "', "text": "```python\nprint()\n```"}
    evaluation = EVALUATION | {"samples": [sample]}
    card = model_card(lineage, evaluation)
    assert "| first | 15 |" in card
    assert "\n````text\n```python\n" in card
    assert "| batch | 512 tokens |\n| steps | 32 |" in card and "| stages |" not in card
    assert yaml.safe_load(card.split("---\n")[1])["pipeline_tag"] == "text-generation"
    assert 'tokenizer("Say \\"", return_tensors="pt")' in card  # the exported tokenizer adds [BOT]
    assert "| **this model** | 3.000 | 1,234.6 |\n| xz -9 | 2.000 |  |" in card
    assert str(tmp_path) not in json.dumps(lineage)
    assert "before anything else saw the text. Documents" in card
    assert "training took" not in model_card(lineage, evaluation, Effort(7200, 7200, usd=None))
    priced = model_card(lineage, evaluation, Effort(7200, 7200, usd=5.0))
    assert "| training took | 7,200 tokens in 2.00 h, 1 tokens/s, 5.00 USD |" in priced
    lineage["recipe"]["transforms"] = [{"name": "strip"}]
    assert "saw the text, except the author's own transforms (strip), which ran first. " in model_card(
        lineage, evaluation
    )


def test_a_model_card_tells_the_stages_and_the_steps_of_all_of_them(store: Store) -> None:
    stages = [{"name": "rough", "share": 0.25, "global_batch_tokens": 1024}, {"name": "best"}]
    lineage = planned(plan.plan(store, recipe(stages=stages)).config, 28).lineage
    lineage["training"]["libraries"] = {"torch": "2.13.0"}
    card = model_card(lineage, EVALUATION)
    assert "| batch | 1,024, then 512 tokens |\n| steps | 28 |" in card
    assert "| stages | rough 25%, best 75% |" in card
