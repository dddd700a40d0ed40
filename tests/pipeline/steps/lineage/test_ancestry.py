"""A model that began with the weights of another one, which was made in another store."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.loading import load_recipe
from pipeline.steps.lineage.checkpoints import read
from pipeline.steps.model.export import published
from pipeline.steps.model.model_card import model_card
from pipeline.store import keys
from pipeline.store.file_hashes import file_sha256
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import ENGINE, TEXTS, StoredRun, prepare
from tests.pipeline.steps.lineage.conftest import QUICK, train
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer
from tests.pipeline.steps.training.test_plan import EVALUATION
from trainer.system.paths import STORE_VARIABLE


@pytest.fixture(scope="module")
def child(trained: StoredRun, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A store of its own, and a checkpoint there that began with the last one of `trained`."""
    directory = tmp_path_factory.mktemp("child")
    base = os.path.relpath(trained[1] / "checkpoints" / "step-00000032" / "hf", directory)
    store = Store(directory / "store")
    prepare(store, directory / "third.jsonl", TEXTS[3:9], [f"pep-{number:04}" for number in range(6)])
    changes = {"pretrained": {"path": base}, "max_tokens": 4096, "checkpoint": {"every_tokens": 4096}}
    settings = {
        "name": "child",
        "corpora": [{"name": "third", "source": {"kind": "files", "paths": ["third.jsonl"]}}],
        "quality": "docs",
        "tokenizer": {"from": base},
        "shards": {"validation_fraction": 0.2},
        "training": TRAINING | QUICK | changes,
    }
    (directory / "recipe.yaml").write_text(yaml.safe_dump(settings))
    recipe = load_recipe(directory / "recipe.yaml")
    deduplicate(store, ENGINE, ["third"], recipe.dedup)
    tokenizer(store, ENGINE, recipe.name, ["third"], recipe.tokenizer, recipe.shards.validation_fraction)
    tokenize(store, ENGINE, "third", recipe.shards)
    return store, train(store, recipe) / "checkpoints" / "step-00000008"


@pytest.fixture
def asked(child: StoredRun, ask: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`python -m pipeline lineage ...` in the child's store."""
    monkeypatch.setenv(STORE_VARIABLE, str(child[0].root))
    return ask


def test_a_checkpoint_carries_the_hash_of_its_first_weights_and_the_lineage_of_their_model(
    trained: StoredRun, child: StoredRun, asked: Any
) -> None:
    base, lineage = trained[1] / "checkpoints" / "step-00000032", read(child[1]).lineage
    weights = file_sha256(base / "hf" / "model.safetensors")
    assert lineage["pretrained"]["files"] == {"model.safetensors": weights}
    assert lineage["pretrained"]["lineage"] == json.loads((base / "lineage.json").read_text())
    assert len(lineage["training"]["pretrained_sha256"]) == 64
    said = asked(str(child[1]))
    assert "started from" in said and lineage["pretrained"]["sha256"] in said.replace("\n", "")
    assert "mine after 16,384 tokens" in said and "of first" in said and "of second" in said


def test_a_corpus_of_the_base_names_the_checkpoints_that_began_with_its_weights(
    trained: StoredRun, asked: Any
) -> None:
    base = read(trained[1] / "checkpoints" / "step-00000032")
    (found,) = json.loads(asked("--corpus", "first", "--json"))
    assert (found["tokens"], found["through"]) == (base.corpus_tokens["first"], "mine after 16,384 tokens")
    raw = trained[0].current(keys.raw("first")).data_version
    assert len(json.loads(asked("--corpus", "first", "--version", raw[:10], "--json"))) == 1
    assert "through the weights it started from: mine after 16,384" in asked("--corpus", "first")


def test_a_document_of_the_base_was_seen_as_often_as_the_base_saw_it(
    trained: StoredRun, ask: Any, child: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    (decisions,) = trained[0].current(keys.DEDUP).files("decisions")[:1]
    documents = pq.read_table(decisions).column("id").to_pylist()[:6]
    by_base = [json.loads(ask("--document", one, "--json"))[-1] for one in documents]
    monkeypatch.setenv(STORE_VARIABLE, str(child[0].root))
    by_child = [json.loads(ask("--document", one, "--json"))[-1] for one in documents]
    assert any(one["steps"] for one in by_base)
    assert {one["through"] for one in by_child} == {"mine after 16,384 tokens"}
    for child_read, base_read in zip(by_child, by_base, strict=True):
        assert child_read | {"checkpoint": "", "through": None} == base_read | {"checkpoint": ""}


def test_a_run_that_no_recipe_planned_is_not_the_base(child: StoredRun, asked: Any) -> None:
    config = child[1].parents[1] / "config.yaml"
    other = child[0].root / "runs" / "by-hand" / "config.yaml"
    other.parent.mkdir()
    other.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "lineage": {}}))
    try:
        assert "in the training text" in asked("--document", "pep-0003")
    finally:
        shutil.rmtree(other.parent)


def test_a_text_is_traced_through_the_weights_that_a_model_started_from(
    trained: StoredRun, child: StoredRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def traced(text: str, checkpoint: Path) -> list[dict[str, Any]]:
        monkeypatch.setenv(STORE_VARIABLE, str(checkpoint.parents[3]))
        assert main(["trace", text[500:900], "--checkpoint", str(checkpoint), "--json"]) == 0
        answers: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return answers

    found = 0
    for text in TEXTS[:9]:  # the last six are of both
        (alone,) = traced(text, trained[1] / "checkpoints" / "step-00000032")
        own, through = traced(text, child[1])
        assert through == alone | {"through": "mine after 16,384 tokens"}
        occurrences = [one for span in own["spans"] for one in span["occurrences"]]
        assert all(one["corpus"] == "third" and set(one["steps"]) <= set(range(1, 9)) for one in occurrences)
        assert not own["through"]
        found += own["covered"] > 0.9 and text in TEXTS[3:9]
    assert found >= 4


def test_what_is_like_a_text_is_found_through_the_weights_that_a_model_started_from(
    child: StoredRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(child[1].parents[3]))
    text = " ".join(TEXTS[0].split()[::-1][:20] + TEXTS[0].split())  # of the base alone
    assert main(["trace", "--near", text, "--checkpoint", str(child[1]), "--json"]) == 0
    own, through = json.loads(capsys.readouterr().out)
    assert (own["through"], through["through"]) == (None, "mine after 16,384 tokens")
    assert not [one for one in own["documents"] if one["jaccard"] > 0.9]
    best = through["documents"][0]
    assert best["corpus"] == "first" and best["held"] == 1 and best["jaccard"] > 0.9


def test_without_the_store_of_the_base_its_corpora_are_known_and_its_documents_are_not(
    trained: StoredRun, asked: Any
) -> None:
    (decisions,) = trained[0].current(keys.DEDUP).files("decisions")[:1]
    document = pq.read_table(decisions).column("id")[0].as_py()
    moved = trained[0].root.rename(trained[0].root.with_name("moved"))
    try:
        assert len(json.loads(asked("--corpus", "first", "--json"))) == 1
        own, base = json.loads(asked("--document", document, "--json"))
        assert own["steps"] == 0 and not own["fates"]
        assert base["steps"] is None and base["through"] == "mine after 16,384 tokens"
        assert "only its own store can tell" in asked("--document", document)
    finally:
        moved.rename(trained[0].root)


def test_what_is_published_names_the_base_and_no_place_on_this_machine(child: StoredRun) -> None:
    lineage = read(child[1]).lineage
    lineage["pretrained"]["lineage"]["recipe"]["launch"] = {"kind": "command", "command": ["/opt/run"]}
    public = published(lineage)
    assert '"/' not in json.dumps(public)
    card = model_card(public, EVALUATION)
    assert "base_model" not in yaml.safe_load(card.split("---\n")[1])  # which the hub would look for
    assert "begun from `mine`, trained on\n4,096 more tokens" in card
    assert "which had been trained on 16,384 tokens of first, second." in " ".join(card.split())
    assert "none of it seen in this training" in card
    del public["pretrained"]["lineage"]
    public["recipe"]["training"]["pretrained"]["path"] = "/home/jane/base"
    card = model_card(public, EVALUATION)
    assert "begun from `base`" in card and "whose own training is not recorded here" in card
    public["recipe"]["training"]["pretrained"] |= {"path": None, "repo": "owner/base", "revision": "1"}
    assert yaml.safe_load(model_card(public, EVALUATION).split("---\n")[1])["base_model"] == "owner/base"


def test_a_document_is_found_by_the_id_that_its_source_gives_it(asked: Any) -> None:
    found = json.loads(asked("--document", "pep-0001", "--json"))
    (document,) = found[0]["fates"]
    assert json.loads(asked("--document", document, "--json")) == found
    assert document in asked("--document", "pep-0001")
