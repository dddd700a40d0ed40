"""What checks say of versions: in order, beyond what is allowed, damaged."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.plugins import Document, document_transform
from pipeline.plugins.settings import TransformParams
from pipeline.recipe.sections import CheckLimits, ShardParams
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.stages.quality import PROFILES
from pipeline.steps import checks
from pipeline.steps.tokens import bigram
from pipeline.steps.tokens.shards import prefixes
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.damage import DamageError
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.manifest import manifest_text
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import TEXTS, prepare
from tests.pipeline.steps.make import deduplicate, judge, scrub, tokenize, tokenizer, transform
from tests.pipeline.steps.training.test_plan import recipe
from tests.pipeline.store.test_damage import flip, flip_in_silence
from trainer.config.tuning import Objective
from trainer.data.shards import bin_path, idx_path

ENGINE = LocalEngine(workers=1)
SHARDS = keys.token_shards("docs")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One corpus taken to token shards; two of its texts are the same."""
    directory = tmp_path_factory.mktemp("prepared")
    store = Store(directory / "store")
    prepare(store, directory / "docs.jsonl", [*TEXTS[:20], TEXTS[3]])
    deduplicate(store, ENGINE, ["docs"], DedupParams())
    tokenizer(store, ENGINE, "test", ["docs"], TokenizerParams(vocab_size=300), 0.2)
    tokenize(store, ENGINE, "docs", ShardParams(validation_fraction=0.2))
    return directory


@pytest.fixture
def store(prepared: Path, tmp_path: Path) -> Store:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return Store(tmp_path / "store")


def found(name: str, store: Store, key: Key = SHARDS, **limits: Any) -> checks.Finding:
    """What a check says of the version in use, with these limits of the recipe."""
    written = recipe("docs")
    changed = written.model_copy(update={"checks": CheckLimits(**limits)})
    (check,) = [one for one in checks.of_key(key) if one.name == name]
    return check.look(checks.Subject(store.current(key), store, changed))


def test_every_document_and_token_is_accounted_for(store: Store) -> None:
    said = found("adds_up", store)
    assert said.passed, said.message
    assert "read, scrubbed: 21 = 21" in said.message and said.numbers["read, scrubbed"] == 21


def test_shards_that_hold_less_than_was_kept_are_noticed(store: Store) -> None:
    version = store.current(keys.token_shards("docs"))
    counts = {**version.counts, "train_documents": version.counts["train_documents"] + 1}
    (version.path / "manifest.json").write_text(manifest_text({**version.manifest, "counts": counts}))
    said = found("adds_up", Store(store.root))
    assert not said.passed and "IS NOT" in said.message


def test_a_changed_byte_is_found_by_the_hash_and_a_cut_file_by_its_size(store: Store) -> None:
    shutil.rmtree(store.root / "token_shards")
    tokenize(store, ENGINE, "docs", ShardParams(validation_fraction=0.2))
    shard = bin_path(prefixes(store.current(keys.token_shards("docs")), "train")[0])
    sound = found("is_sound", store)
    assert sound.passed and "0 read now, 5 unchanged since" in sound.message  # hashed when they were written
    flip(shard, 10)
    changed = found("is_sound", store)
    assert not changed.passed and f"{shard} is corrupt" in changed.message
    os.truncate(shard, shard.stat().st_size - 2)
    cut = found("is_sound", store)
    assert not cut.passed and f"{shard} has " in cut.message
    tokenize(Store(store.root), ENGINE, "docs", ShardParams(validation_fraction=0.2))
    assert found("is_sound", store).passed


def test_an_index_that_rotted_is_one_sentence_and_is_made_again(store: Store) -> None:
    index = idx_path(prefixes(store.current(keys.token_shards("docs")), "train")[0])
    flip_in_silence(index, 9)
    said = found("adds_up", store)
    assert not said.passed and f"{index} is corrupt" in said.message
    tokenize(Store(store.root), ENGINE, "docs", ShardParams(validation_fraction=0.2))
    assert found("adds_up", store).passed


def test_training_does_not_begin_on_a_shard_that_was_changed(store: Store) -> None:
    wanted = recipe("docs")
    shard = bin_path(prefixes(store.current(keys.token_shards("docs")), "train")[0])
    plan.check(store, wanted)
    flip(shard, 10)
    with pytest.raises(DamageError, match=rf"{shard} is corrupt.*token_shards/docs"):
        plan.check(store, wanted)


def test_shares_are_held_against_what_is_allowed(store: Store) -> None:
    assert found("little_set_aside", store, keys.raw("docs"), max_set_aside_share=0).passed
    assert found("enough_is_kept", store, keys.quality("docs")).passed


def test_a_corpus_without_held_out_text_is_warned_of_with_the_setting(store: Store) -> None:
    held_out = store.current(keys.token_shards("docs")).counts["validation_documents"]
    said = found("holds_out_text", store)
    assert said.passed and f"{held_out} of 20 documents of docs are held out" in said.message
    tokenize(store, ENGINE, "docs", ShardParams(validation_fraction=1e-6))
    none = found("holds_out_text", store)
    assert not none.passed and "0 of 20 documents of docs" in none.message
    assert "raise `shards.validation_fraction`, which is 0." in none.message


def test_a_corpus_of_which_quality_rejects_more_than_half_is_warned_of_with_the_rule(store: Store) -> None:
    assert found("half_is_kept", store, keys.quality("docs")).passed
    judge(store, ENGINE, "docs", PROFILES["docs"].model_copy(update={"max_words": 300}))
    said = found("half_is_kept", store, keys.quality("docs"))
    assert not said.passed and "% of the 21 documents of docs, " in said.message
    assert "by max_words." in said.message and "change `quality.max_words`" in said.message
    written = recipe("docs")
    own = written.corpora[0].model_copy(update={"quality": PROFILES["docs"]})
    theirs = written.model_copy(update={"corpora": (own,)})
    version = store.current(keys.quality("docs"))
    said = checks.half_is_kept(checks.Subject(version, store, theirs))
    assert "change `corpora.docs.quality.max_words`" in said.message
    assert "English" not in said.message


def test_foreign_text_that_is_judged_as_english_is_told_how_it_is_judged_by_its_language(
    store: Store,
) -> None:
    with pytest.raises(PipelineError, match="set `by_language: true` if the text is not in English"):
        judge(store, ENGINE, "docs", PROFILES["none"].model_copy(update={"max_avg_word_length": 0.5}))
    judge(store, ENGINE, "docs", PROFILES["none"].model_copy(update={"max_avg_word_length": 5.35}))
    for by_language, told in ((False, True), (True, False)):
        params = PROFILES["none"].model_copy(update={"by_language": by_language})
        theirs = recipe("docs").model_copy(update={"quality": params})
        said = checks.half_is_kept(checks.Subject(store.current(keys.quality("docs")), store, theirs))
        assert not said.passed
        assert ("or set `quality.by_language: true` if the text is not in English" in said.message) == told


@pytest.mark.parametrize(("code", "passes"), [("emptied", False), ("shortened", True)])
def test_a_transform_that_empties_texts_is_warned_of(store: Store, code: str, passes: bool) -> None:
    assert found("half_is_left", store, keys.scrubbed("docs")).passed
    rewritten = TransformParams(python=f"{__name__}:{code}", version="1")
    transform(store, ENGINE, "docs", [rewritten])
    scrub(store, ENGINE, "docs", read=keys.transformed("docs"))
    said = found("half_is_left", store, keys.scrubbed("docs"))
    assert said.passed == passes and "bytes of text of docs are left (" in said.message
    assert ("if its transforms and edits should not" in said.message) != passes


@pytest.mark.parametrize("objective", ["pretrain", "sft", "dpo"])
@pytest.mark.parametrize("code", ["shortened", "asked"])
def test_texts_and_conversations_are_told_apart_before_they_are_compared(
    store: Store, objective: Objective, code: str
) -> None:
    """A transform may make conversations of texts."""
    rewritten = TransformParams(python=f"{__name__}:{code}", version="1")
    transform(store, ENGINE, "docs", [rewritten])
    scrub(store, ENGINE, "docs", read=keys.transformed("docs"))
    version, written = store.current(keys.scrubbed("docs")), recipe("docs")
    training = written.training.model_copy(update={"objective": objective})
    wanted = written.model_copy(update={"training": training})
    said = checks.can_be_learned(checks.Subject(version, store, wanted))
    assert said.passed == ((code == "asked") == (objective != "pretrain"))
    remedies = {
        "pretrain": "a section of `post_training`",
        "sft": "format: chat",
        "dpo": "format: preferences",
    }
    assert (remedies[objective] in said.message) != said.passed
    held = written.corpora[0].model_copy(update={"train": False})
    apart = checks.Subject(version, store, wanted.model_copy(update={"corpora": (held,)}))
    assert checks.can_be_learned(apart).passed


@document_transform
def asked(document: Document) -> str:
    return f"\x1euser\x1fSay.\x1eassistant\x1f{document.text}"


@document_transform
def emptied(document: Document) -> str:
    return ""


@document_transform
def shortened(document: Document) -> str:
    return document.text[: len(document.text) * 3 // 4]


def test_warnings_stop_nothing() -> None:
    warnings = {check.name for check in checks.CHECKS if not check.blocking}
    assert {"holds_out_text", "half_is_kept", "half_is_left"} <= warnings


def test_a_bigram_model_needs_what_counting_by_hand_needs() -> None:
    chooser = np.random.default_rng(1)
    train, held_out = chooser.integers(0, 7, 4000), chooser.integers(0, 7, 300)
    train[1::2] = (train[::2] + 1) % 7  # half of the pairs can be known
    pairs = np.zeros((7, 7))
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    tokens = np.bincount(train, minlength=7)
    expected = (tokens + 1) / (len(train) + 7)

    def loss(prior: float) -> float:
        probability = (pairs + prior * expected) / (tokens[:, None] + prior)
        return float(-np.log(probability[held_out[:-1], held_out[1:]]).mean())

    found = bigram.loss([train], held_out, 7)
    assert found == pytest.approx(min(map(loss, bigram.PRIORS)), rel=1e-9)
    assert bigram.loss([train[:1001], train[1000:]], held_out, 7) == pytest.approx(found, rel=1e-3)
