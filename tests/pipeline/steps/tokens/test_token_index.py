"""The index of token shards: right, made again only where shards changed, the same from any number of
processes, and resumed.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.steps.tokens import token_index
from pipeline.steps.tokens.token_index import TokenSearch, of_shards
from pipeline.store.cleanup import gc
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.integration.project import until
from tests.pipeline.steps.corpora import TEXTS
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer, up_to_quality
from tests.pipeline.steps.stored import contents, indexed_parts
from tests.pipeline.steps.tokens.stored_shards import counted, cut, drawn, put_shards, runs_of

ENGINE = LocalEngine(workers=1)


@pytest.mark.parametrize(
    ("dtype", "parts", "number_of_blocks"),
    [(np.uint16, 1, 1), (np.uint16, 3, 5), (np.uint32, 1, 5), (np.uint32, 3, 1)],
)
def test_a_thousand_runs_are_counted_and_placed_as_a_scan_finds_them(
    dtype: type, parts: int, number_of_blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = drawn(parts, 240 // parts, dtype)
    cut(monkeypatch, documents, number_of_blocks)
    store = Store(tmp_path)
    shards = put_shards(store, documents, dtype)
    version = of_shards(store, ENGINE, shards)
    index = TokenSearch(shards, version)
    assert len(index._blocks) >= number_of_blocks * parts
    stream = np.concatenate([document for part in documents.values() for document in part])
    for run in runs_of(documents, 1000):
        positions = index.positions(run)
        assert index.count(run) == len(positions) == counted(documents, run)
        assert all(np.array_equal(stream[place : place + len(run)], run) for place in positions[:3])
    assert version.bytes == 4 * len(stream)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return indexed_parts(monkeypatch, token_index)


def test_only_parts_whose_train_shards_changed_are_indexed_again(tmp_path: Path, made: list[str]) -> None:
    store, documents = Store(tmp_path), drawn(3, 20, np.uint16)
    before = of_shards(store, ENGINE, put_shards(store, documents, np.uint16))
    made.clear()
    documents["part3"] = drawn(1, 20, np.uint16, seed=9)["part0"]
    shards = put_shards(store, documents, np.uint16)
    after = of_shards(store, ENGINE, shards)
    assert made == ["part3"] and contents(after)[:3] == contents(before)
    assert [path.stat().st_ino for path in after.opened()[:3]] == [
        path.stat().st_ino for path in before.opened()
    ]
    assert of_shards(store, ENGINE, shards).reused and made == ["part3"]


def test_a_new_file_of_a_corpus_adds_parts_and_leaves_the_others(tmp_path: Path, made: list[str]) -> None:
    def indexed(*files: Sequence[str]) -> Version:
        for number, texts in enumerate(files):
            lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
            (tmp_path / f"{number}.jsonl").write_text(lines)
        source = FilesConfig(paths=("*.jsonl",)).anchored(tmp_path)
        up_to_quality(store, ENGINE, "books", source, 20_000)
        deduplicate(store, ENGINE, ["books"], DedupParams())
        tokenizer(store, ENGINE, "mine", ["books"], TokenizerParams(vocab_size=300), 0.1)
        tokenize(store, ENGINE, "books", ShardParams(validation_fraction=0.1))
        return token_index.TokenIndex("books").make(store, ENGINE)

    store = Store(tmp_path / "store")
    before = indexed(TEXTS[:10], TEXTS[10:20])
    assert sorted(made) == sorted(part.name for part in before.parts) and len(made) > 4
    made.clear()
    after = indexed(TEXTS[:10], TEXTS[10:20], TEXTS[20:])
    new = {part.name for part in after.parts} - {part.name for part in before.parts}
    assert set(made) == new and 0 < len(new) < len(after.parts)


MAKING = """
import sys
from pathlib import Path
from pipeline.steps.tokens.token_index import of_shards
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store

store = Store(Path(sys.argv[1]))
(shards,) = store.newest_first(keys.token_shards("books"))
of_shards(store, LocalEngine(int(sys.argv[2]), processes_pay_above=0), shards)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
def test_an_index_whose_processes_are_killed_goes_on_with_the_parts_that_are_left(
    workers: int, tmp_path: Path, made: list[str]
) -> None:
    """Real processes, and SIGKILL for all of them."""
    chooser = np.random.default_rng(1)
    documents = {f"part{number}": list(chooser.integers(3, 9000, (40, 20_000))) for number in range(16)}
    whole, killed = Store(tmp_path / "whole"), Store(tmp_path / "killed")
    expected = contents(of_shards(whole, ENGINE, put_shards(whole, documents, np.uint16)))
    shards = put_shards(killed, documents, np.uint16)
    command = [sys.executable, "-c", MAKING, str(killed.root), str(workers)]
    process = subprocess.Popen(command, start_new_session=True)

    def finished() -> set[str]:
        return {path.stem for path in killed.root.glob("token_index/books/.*.partial/.parts/*.json")}

    until(lambda: len(finished()) >= 2 or process.poll() is not None, 60)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = finished()
    made.clear()
    assert 2 <= len(before) < 16
    assert contents(of_shards(killed, ENGINE, shards)) == expected
    assert sorted(made) == sorted(documents.keys() - before)


class Usage(NamedTuple):
    free: int


def test_a_disk_that_is_too_full_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    shards = put_shards(store, drawn(1, 20, np.uint16), np.uint16)
    monkeypatch.setattr(token_index.shutil, "disk_usage", lambda path: Usage(1000))
    needed = f"{token_index.size(shards) / 1e6:.3f} MB"
    assert needed != "0.000 MB"
    match = rf"index of corpus books takes {re.escape(needed)}, but .* has 0\.001 MB free"
    with pytest.raises(PipelineError, match=match):
        of_shards(store, ENGINE, shards)
    assert not (tmp_path / "token_index").exists()


def test_an_index_stays_as_long_as_its_shards(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shards = put_shards(store, drawn(1, 5, np.uint16), np.uint16)
    index = of_shards(store, ENGINE, shards)
    assert {item.paths[0] for item in gc.find(store)} == {shards.path, index.path}
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("name: mine")
    LastVersions(store.files, RecipeName("mine", str(recipe))).use(shards.key, shards.path.name)
    assert gc.find(store) == []
