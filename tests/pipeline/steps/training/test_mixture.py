"""What all corpora decide together: which duplicate stays, and the tokenizer that stays."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.recipe.sections import ShardParams
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS, prepare
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer

SMALL = TokenizerParams(vocab_size=400)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora up to a tokenizer; `copies` holds nothing but what `originals` holds too."""
    directory = tmp_path_factory.mktemp("prepared")
    store = Store(directory / "store")
    prepare(store, directory / "originals.jsonl", TEXTS)
    prepare(store, directory / "copies.jsonl", TEXTS[:5])
    deduplicate(store, ENGINE, ["originals", "copies"], DedupParams())
    trained(store)
    return directory


@pytest.fixture
def store(prepared: Path, tmp_path: Path) -> Store:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return Store(tmp_path / "store")


def kept(version: Version, corpus: str) -> int:
    tables = [
        pq.read_table(version.file(part, "decisions"))
        for part in version.parts
        if part.name.startswith(f"{corpus}.")
    ]
    return sum(table.column("keep").to_pylist().count(True) for table in tables)


def trained(
    store: Store,
    corpora: Sequence[str] = ("originals", "copies"),
    held_out: float = 0.1,
    retrain: bool = False,
) -> Version:
    return tokenizer(store, ENGINE, "mine", corpora, SMALL, held_out, retrain)


def test_of_two_corpora_the_one_that_the_recipe_names_first_keeps_the_duplicates(store: Store) -> None:
    first = deduplicate(store, ENGINE, ["originals", "copies"], DedupParams())
    assert kept(first, "copies") == 0
    assert kept(first, "originals") >= 25
    other = deduplicate(store, ENGINE, ["copies", "originals"], DedupParams())
    assert kept(other, "copies") > 0
    assert kept(other, "copies") + kept(other, "originals") == kept(first, "originals")


def test_a_corpus_of_which_nothing_is_left_has_empty_shards(store: Store) -> None:
    shards = tokenize(store, ENGINE, "copies", ShardParams())
    assert shards.counts["train_tokens"] == shards.counts["validation_tokens"] == 0


def test_the_tokenizer_stays_when_the_corpora_change_and_after_another_was_in_use(
    store: Store, tmp_path: Path
) -> None:
    first = trained(store)
    prepare(store, tmp_path / "originals.jsonl", TEXTS[:20])
    deduplicate(store, ENGINE, ["originals", "copies"], DedupParams())
    assert trained(store, held_out=0.2).data_version == first.data_version
    other = tokenizer(store, ENGINE, "mine", ["originals", "copies"], TokenizerParams(vocab_size=300), 0.1)
    assert other.counts["entries"] == 300
    assert trained(store).data_version == store.current(keys.TOKENIZER).data_version == first.data_version


def test_a_tokenizer_trained_on_request_stays_even_when_it_was_made_before(
    store: Store, tmp_path: Path
) -> None:
    first = trained(store)
    deduplicate(store, ENGINE, ["originals"], DedupParams())
    second = trained(store, ["originals"], held_out=0.4, retrain=True)
    assert second.data_version != first.data_version
    deduplicate(store, ENGINE, ["originals", "copies"], DedupParams())
    assert trained(store, retrain=True).data_version == first.data_version
    assert trained(store).data_version == first.data_version


def test_a_tokenizer_trained_on_request_leaves_out_what_is_held_out_now(store: Store) -> None:
    first = trained(store)
    assert trained(store, held_out=0.4, retrain=True).counts["documents"] < first.counts["documents"]
