"""Counts of runs of tokens, beside those of infini-gram (Liu et al. 2024), on the same shards."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.steps.tokens.token_index import TokenSearch, of_shards
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.tokens.stored_shards import EOT, Parts, cut, drawn, put_shards, runs_of

pytestmark = pytest.mark.slow
SEPARATOR = np.iinfo(np.uint16).max  # which infini-gram writes before each document


@pytest.fixture(scope="module", params=[1, 3], ids=["one part", "three parts"])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Parts, Any]:
    """Documents in so many parts, and infini-gram's engine on them. Of ids of 32 bits its indexing sorts by a
    table of 34 GB: its ids have 16 bits.
    """
    engine = pytest.importorskip("infini_gram.engine", reason="needs infini-gram, the peer")
    documents, place = drawn(request.param, 240 // request.param, np.uint16), tmp_path_factory.mktemp("peer")
    each = [np.append(SEPARATOR, document) for part in documents.values() for document in part]
    np.concatenate(each).astype(np.uint16).tofile(place / "tokenized.0")
    np.cumsum([0, *(2 * len(document) for document in each[:-1])], dtype=np.uint64).tofile(place / "offset.0")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    options = [f"--data_dir={place}", f"--save_dir={place}", "--cpus=1", "--mem=1", f"--ulimit={files}"]
    command = [sys.executable, "-m", "infini_gram.indexing", *options]
    subprocess.run(command, check=True, capture_output=True)
    return documents, engine.InfiniGramEngine(str(place), eos_token_id=EOT)


@pytest.mark.parametrize("number_of_blocks", [1, 5])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_a_thousand_runs_are_counted_as_infini_gram_counts_them(
    peer: tuple[Parts, Any],
    dtype: type,
    number_of_blocks: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents, theirs = peer
    cut(monkeypatch, documents, number_of_blocks)
    shards = put_shards(store := Store(tmp_path), documents, dtype)
    ours = TokenSearch(shards, of_shards(store, LocalEngine(workers=1), shards))
    assert len(ours._blocks) >= number_of_blocks * len(documents)
    for run in runs_of(documents, 1000):
        assert theirs.count(run.tolist()) == {"count": ours.count(run), "approx": False}
