"""A tokenizer is trained on the same words, whoever counts them."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.sources.files import FilesConfig
from pipeline.stages import bpe
from pipeline.stages.dedup import DedupParams
from pipeline.stages.held_out import held_out, share_of
from pipeline.steps.tokens import word_counts
from pipeline.store import keys
from pipeline.store.engines.local import Engine, LocalEngine, Result, Task, WorkerLostError
from pipeline.store.files import Scratch
from pipeline.store.manifest import Version
from pipeline.store.parts import Counts, kept_documents
from pipeline.store.store import Store
from tests.integration.project import ROOT, python_topics
from tests.pipeline.steps.corpora import ENGINE
from tests.pipeline.steps.make import deduplicate, tokenizer, up_to_quality
from tests.rows import jsonl

CORPORA = ("even", "odd")
PARAMS = bpe.TokenizerParams(vocab_size=500)
HELD_OUT = 0.1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two corpora of several parts each, up to dedup."""
    directory = tmp_path_factory.mktemp("words")
    return prepare(directory / "store", directory, part_bytes=60_000)


def prepare(root: Path, source: Path, part_bytes: int) -> Store:
    store = Store(root)
    for number, corpus in enumerate(CORPORA):
        rows = python_topics()[number::2]
        jsonl(source / f"{corpus}.jsonl", *rows)
        files = FilesConfig(paths=(str(source / f"{corpus}.jsonl"),))
        up_to_quality(store, ENGINE, corpus, files, part_bytes)
    deduplicate(store, ENGINE, CORPORA, DedupParams())
    return store


def one_pass(store: Store, params: bpe.TokenizerParams) -> tuple[bpe.CountedWords, Counts]:
    """What is trained on: of one corpus after the other the first chosen documents that fit."""
    counts: Counts = {"documents": 0, "text_bytes": 0}
    sizes = {corpus: store.current(keys.scrubbed(corpus)).counts["text_bytes"] for corpus in CORPORA}
    taken = []
    for corpus, left in bpe.budgets(sizes, params.sample_bytes).items():
        share = left / sizes[corpus]
        for batch in kept_documents(store, corpus):
            ids, texts = batch.column("id"), batch.column("text").to_pylist()
            chosen = ~held_out(ids, HELD_OUT) & (share_of(ids, "tokenizer") < share)
            for text in (texts[row][: bpe.MAX_DOCUMENT_CHARS] for row in np.flatnonzero(chosen)):
                left -= len(text.encode())
                if left < 0:
                    break
                taken.append(text)
                counts["documents"] += 1
                counts["text_bytes"] += len(text.encode())
            if left < 0:
                break
    return bpe.count_words([pa.array(taken, pa.string())], params.pattern, params.single_digits), counts


def counted(store: Store, directory: Path, sample_bytes: int, pattern: str = "llama3") -> bool:
    """Counts as the tokenizer does. Returns whether that gives what `one_pass` does."""
    params = bpe.TokenizerParams.model_validate({"sample_bytes": sample_bytes, "pattern": pattern})
    expected, of_sample = one_pass(store, params)
    scratch = Scratch(directory, store.files, apart=False)
    words, counts = word_counts.of_sample(store, ENGINE, scratch, CORPORA, params, HELD_OUT)
    assert counts == of_sample and not list(directory.iterdir())
    return all(map(np.array_equal, words, expected))


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 700_000), st.sampled_from(["llama3", "gpt2"]))
@example(1, "gpt2")  # no document fits
@example(10**9, "llama3")  # all do
def test_the_words_of_any_sample_are_those_of_one_pass_in_their_order(
    store: Store, tmp_path_factory: pytest.TempPathFactory, sample_bytes: int, pattern: str
) -> None:
    assert len(store.current(keys.scrubbed("even")).parts) > 3
    assert counted(store, tmp_path_factory.mktemp("scratch"), sample_bytes, pattern)


@pytest.mark.parametrize("part_bytes", [20_000, 10**9])
def test_so_are_those_of_other_parts_and_of_pieces_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    store = prepare(tmp_path / "store", tmp_path, part_bytes)
    monkeypatch.setattr(word_counts, "PIECE_BYTES", 3000)
    (tmp_path / "scratch").mkdir()
    for sample_bytes in (10**9, 150_000):
        assert counted(store, tmp_path / "scratch", sample_bytes)


def trained(store: Store, engine: Engine = ENGINE) -> Version:
    """A tokenizer that is trained anew."""
    shutil.rmtree(store.root / "tokenizer", ignore_errors=True)
    version = tokenizer(Store(store.root), engine, "test", CORPORA, PARAMS, HELD_OUT, retrain=True)
    names = {"manifest.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in version.path.rglob("*") if path.is_file()} == names
    return version


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_processes_train_the_same_tokenizer_as_one(store: Store, workers: int) -> None:
    several = LocalEngine(workers, processes_pay_above=0)
    version = trained(store, several)
    several.close()
    assert version.data_version == trained(store).data_version


class Disturbed:
    """An engine of two processes, of which one is killed: the worker, or after the first piece the run."""

    apart = False

    def __init__(self, kills_the_run: bool):
        self.engine = LocalEngine(workers=2, processes_pay_above=0)
        self.kills_the_run = kills_the_run

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, input_bytes: int, what: str
    ) -> Iterator[Result]:
        survivor = None if self.kills_the_run else os.getpid()
        disturbed = partial(killed_unless, survivor, function)
        for result in self.engine.map(disturbed, tasks, input_bytes=input_bytes, what=what):
            if self.kills_the_run:
                os.kill(os.getpid(), signal.SIGKILL)
            yield result

    def close(self) -> None:
        self.engine.close()


def killed_unless(survivor: int | None, function: Callable[[Task], Result], task: Task) -> Result:
    if survivor not in (None, os.getpid()):
        os.kill(os.getpid(), signal.SIGKILL)
    return function(task)


@pytest.mark.slow
def test_a_worker_that_dies_is_named_and_the_next_attempt_trains_the_same_tokenizer(store: Store) -> None:
    expected = trained(store).data_version
    engine = Disturbed(kills_the_run=False)
    with pytest.raises(WorkerLostError, match="tokenizer words: a worker process was killed"):
        trained(store, engine)
    engine.close()
    assert not list((store.root / "tokenizer").glob("*/manifest.json"))
    again = tokenizer(Store(store.root), ENGINE, "test", CORPORA, PARAMS, HELD_OUT)
    assert again.data_version == expected


RUN = """
import sys
from pathlib import Path
from pipeline.store.store import Store
from tests.pipeline.steps.tokens import test_word_counts
if __name__ == "__main__":
    test_word_counts.trained(Store(Path(sys.argv[1])), test_word_counts.Disturbed(kills_the_run=True))
"""


@pytest.mark.slow
def test_the_run_after_one_that_was_killed_while_it_counted_trains_the_same_tokenizer(store: Store) -> None:
    expected = trained(store).data_version
    command = [sys.executable, "-c", RUN, str(store.root)]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=300).returncode == -signal.SIGKILL
    (left,) = (store.root / "tokenizer").glob(".*.partial")
    assert list(left.glob("scratch-*"))
    version = tokenizer(Store(store.root), ENGINE, "test", CORPORA, PARAMS, HELD_OUT)
    assert version.data_version == expected and not list(version.path.glob("scratch-*"))
