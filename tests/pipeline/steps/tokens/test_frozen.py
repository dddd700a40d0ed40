"""The tokenizer that a recipe uses is never replaced without being asked."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pipeline.recipe.loading import load_recipe
from pipeline.stages.bpe import TokenizerError
from pipeline.stages.dedup import DedupParams
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.store import keys
from pipeline.store.files import MANIFEST
from pipeline.store.manifest import Version, manifest_text
from pipeline.store.store import Store, StoreError
from pipeline.store.work import Work
from tests.pipeline.steps.corpora import ENGINE, TEXTS, as_it_was, prepare
from tests.pipeline.steps.make import deduplicate, tokenizer
from tests.pipeline.steps.training.test_plan import recipe
from tests.pipeline.store.test_damage import flip, flip_in_silence


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus up to dedup, and the tokenizer that the recipe in mine.yaml trained on it."""
    directory = tmp_path_factory.mktemp("frozen")
    (directory / "mine.yaml").write_text(yaml.safe_dump(recipe("first").model_dump(mode="json")))
    store = seen_by(directory / "mine.yaml")
    prepare(store, directory / "first.jsonl", TEXTS[:12])
    deduplicate(store, ENGINE, ["first"], DedupParams())
    train(directory / "mine.yaml")
    return directory


@pytest.fixture
def mine(prepared: Path) -> Iterator[Path]:
    """The recipe's file, beside the store as it was made."""
    with as_it_was(prepared):
        yield prepared / "mine.yaml"


def seen_by(path: Path) -> Store:
    return Store(path.parent / "store", RecipeVersions(load_recipe(path)))


def train(path: Path, retrain: bool = False) -> Version:
    """What a run of the recipe in a file does."""
    found, store = load_recipe(path), seen_by(path)
    return tokenizer(store, ENGINE, found.name, found.corpus_names, found.tokenizer, 0.2, retrain)


def made_by_other_code(version: Version, code_version: str) -> None:
    """The version as code with another code version would have made and used it."""
    work = Work(version.key, code_version, version.manifest["params"], version.manifest["inputs"])
    changed = {"code_version": code_version, "fingerprint": work.fingerprint}
    (version.path / "manifest.json").write_text(manifest_text({**version.manifest, **changed}))
    version.path.rename(path := version.path.with_name(work.fingerprint[:16]))
    seen_by(version.path.parents[2] / "mine.yaml").use(replace(version, path=path))


FAULTS: dict[str, Callable[[Version], object]] = {
    "tokenizer.json is missing": lambda it: (it.path / "tokenizer.json").unlink(),
    "tokenizer_config.json has 9 bytes": lambda it: os.truncate(it.path / "tokenizer_config.json", 9),
    "tokenizer.json is corrupt": lambda it: flip(it.path / "tokenizer.json", 3000),
    "special_tokens_map.json is corrupt": lambda it: flip_in_silence(it.path / "special_tokens_map.json", 9),
    "is missing or its manifest is damaged": lambda it: (it.path / MANIFEST).write_text("{"),
    "the recipe's tokenizer, is missing": lambda it: shutil.rmtree(it.path),
    r"made by an earlier version of this program \(bpe-1\)": lambda it: made_by_other_code(it, "bpe-1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tokenizer_in_use_is_replaced_on_request_only(mine: Path, fault: str) -> None:
    before = train(mine)
    assert before.reused
    FAULTS[fault](before)
    for attempt in (lambda: train(mine), lambda: seen_by(mine).current(keys.TOKENIZER)):
        with pytest.raises(TokenizerError, match=rf"{fault}.*retrain: true"):
            attempt()
    assert train(mine, retrain=True).data_version == before.data_version
    assert train(mine).reused


def test_a_recipe_that_was_renamed_says_so_and_one_in_another_file_trains_its_own(mine: Path) -> None:
    before = train(mine)
    renamed = yaml.safe_load(mine.read_text()) | {"name": "ours"}
    other = mine.with_name("other.yaml")
    other.write_text(yaml.safe_dump(renamed))
    assert train(other).path != before.path
    text = mine.read_text()
    mine.write_text(yaml.safe_dump(renamed | {"name": "mine-2"}))
    with pytest.raises(TokenizerError, match="this recipe was called 'mine' when it was made"):
        train(mine)
    other_settings = renamed | {"name": "mine-3", "tokenizer": {"vocab_size": 310}}
    mine.write_text(yaml.safe_dump(other_settings))
    assert train(mine).path != before.path
    mine.write_text(text)
    assert train(mine).path == before.path


def appended(mine: Path) -> Path:
    """A recipe of another file and the same name, which appends tokens for conversations."""
    written = yaml.safe_load(mine.read_text())
    other = mine.with_name("tuned.yaml")
    other.write_text(yaml.safe_dump(written | {"tokenizer": written["tokenizer"] | {"chat": "appended"}}))
    return other


def test_appended_tokens_follow_the_tokenizer_of_the_recipe_without_them(mine: Path) -> None:
    base, tuned = train(mine), appended(mine)
    assert base.manifest["params"]["tokenizer"]["chat"] is False
    with pytest.raises(StoreError, match="tokenizer has not been made for this recipe yet"):
        seen_by(tuned).current(keys.TOKENIZER)
    made = train(tuned)
    assert made.counts["entries"] == base.counts["entries"] + 5
    assert made.manifest["inputs"] == {"appended_to": base.data_version}
    assert train(tuned).reused and seen_by(tuned).current(keys.TOKENIZER).path == made.path
    assert train(mine).path == base.path
    shutil.rmtree(made.path)
    assert train(tuned).data_version == made.data_version


def test_appended_tokens_need_that_tokenizer(mine: Path) -> None:
    shutil.rmtree(train(mine).path.parent)
    with pytest.raises(TokenizerError, match="no tokenizer of this recipe without tokens for conversations"):
        train(appended(mine))


def test_reserved_tokens_are_another_setting_and_the_tokenizer_without_stays(mine: Path) -> None:
    base, written = train(mine), mine.read_text()
    settings = yaml.safe_load(written)
    mine.write_text(yaml.safe_dump(settings | {"tokenizer": settings["tokenizer"] | {"chat": True}}))
    reserved = train(mine)
    assert reserved.path != base.path and reserved.counts["entries"] == base.counts["entries"]
    mine.write_text(written)
    assert train(mine).path == base.path
