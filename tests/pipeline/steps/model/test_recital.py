"""What a checkpoint recites: a document that it read 200 times, and nothing that was held out."""

import json
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.recipe.loading import RECIPE_VARIABLE
from pipeline.steps.lineage.checkpoints import read
from pipeline.steps.lineage.readers import readers
from pipeline.steps.model.recital import recited_passages
from pipeline.steps.trace.trace import Searcher
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import ENGINE, TEXTS, StoredRun, prepare
from tests.pipeline.steps.lineage.conftest import QUICK, trained_on
from trainer.system.paths import STORE_VARIABLE

MODEL = {"n_layers": 2, "d_model": 128, "n_heads": 4, "n_kv_heads": 4, "d_ff": 352, "qk_norm": False}
LONG = {
    "model": MODEL,
    "seq_len": 128,
    "global_batch_tokens": 256,
    "micro_batch_size": 2,
    "max_tokens": 153_600,
    "optimizer": {"kind": "adamw", "lr": 4e-3},
    "schedule": {"kind": "cosine", "warmup_tokens": 8192},
    "checkpoint": {"every_tokens": 153_600, "keep_last": 1},
    "evaluation": {"every_tokens": 153_600},
}


@pytest.fixture(scope="module")
def recited(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A corpus of one document, the part of the training that lets it be read some 200 times, and another."""
    directory = tmp_path_factory.mktemp("recited")
    store = Store(directory / "store")
    prepare(store, directory / "planted.jsonl", [TEXTS[0][:1100]], ["the-planted-one"])
    prepare(store, directory / "rest.jsonl", TEXTS[1:30])
    corpora = [{"name": "planted", "weight": 2.0}, {"name": "rest", "weight": 1.0}]
    run = trained_on(store, corpora, {"vocab_size": 400}, TRAINING | QUICK | LONG)
    return store, run / "checkpoints" / "step-00000600"


@pytest.mark.slow
def test_a_planted_document_that_was_read_often_is_recited_and_none_that_was_held_out(
    recited: StoredRun, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    store, path = recited
    checkpoint = read(path)
    passages = recited_passages(store, checkpoint, Searcher(readers(store, checkpoint)[0], ENGINE))
    planted = [one for one in passages if one.corpus == "planted" and one.read]
    held_out = [one for one in passages if not one.read]
    assert len(planted) > 50 and all(one.read > 180 for one in planted)
    assert len(held_out) > 50 and not any(one.recites == 50 for one in held_out)
    recited_whole = [one for one in passages if one.recites == 50]
    assert len(recited_whole) > 10 and {one.corpus for one in recited_whole} == {"planted"}
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    assert main(["trace", "--memory", checkpoint.name]) == 0
    said = capsys.readouterr().out
    assert planted[0].document in said and "held out" in said
    # What it writes after a prompt of the planted text is traced to it.
    monkeypatch.setenv(RECIPE_VARIABLE, str(store.root.parent / "recipe.yaml"))
    (question := store.root.parent / "mine.jsonl").write_text(
        json.dumps({"context": TEXTS[0][:200], "continuations": [TEXTS[0][200:400], "no"], "gold": 0})
        + "\n"
        + json.dumps({"context": "Zqx jvk wpf", "continuations": [" yes", " no"], "gold": 1})
        + "\n"
    )
    assert main(["trace", "--benchmark", str(question), "--checkpoint", checkpoint.name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["texts"], found["with 16 tokens"], found["with 32 tokens"]) == (2, 1, 1)
    assert found["items"][0]["longest"]["occurrences"][0]["document"] == planted[0].document
    assert found["items"][0]["covered"] > 0.95 and found["items"][1]["tokens"] == 0
