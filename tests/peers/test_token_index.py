"""Counts of runs of tokens, beside those of infini-gram (Liu et al. 2024), on the same shards."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.steps.tokens.indexed import Index
from pipeline.steps.tokens.token_index import of_shards
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.tokens.stored_shards import drawn, put_shards, runs_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("dtype", "name"), [(np.uint16, "u16"), (np.uint32, "u32")])
def test_a_thousand_runs_are_counted_as_infini_gram_counts_them(
    dtype: type, name: str, tmp_path: Path
) -> None:
    engine = pytest.importorskip("infini_gram.engine", reason="needs infini-gram, the peer")
    documents = drawn(3, 80, dtype)
    (tmp_path / "peer").mkdir()
    separator = np.array([np.iinfo(dtype).max], dtype)  # which infini-gram writes before each document
    each = [
        np.concatenate([separator, document.astype(dtype)])
        for part in documents.values()
        for document in part
    ]
    np.concatenate(each).tofile(tmp_path / "peer" / "tokenized.0")
    ends = np.cumsum([document.nbytes for document in each]).astype(np.uint64)
    np.append(np.uint64(0), ends[:-1]).tofile(tmp_path / "peer" / "offset.0")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    where = [f"--data_dir={tmp_path}", f"--save_dir={tmp_path / 'peer'}", f"--token_dtype={name}"]
    command = [
        sys.executable,
        "-m",
        "infini_gram.indexing",
        *where,
        "--cpus=1",
        "--mem=1",
        f"--ulimit={files}",
    ]
    subprocess.run(command, check=True, capture_output=True)
    theirs = engine.InfiniGramEngine(
        str(tmp_path / "peer"), eos_token_id=2, vocab_size=200_000, token_dtype=name
    )

    store = Store(tmp_path / "store")
    shards = put_shards(store, documents, dtype)
    ours = Index(shards, of_shards(store, LocalEngine(workers=1), shards))
    for run in runs_of(documents, 1000):
        assert theirs.count(run.tolist()) == {"count": ours.count(run), "approx": False}
