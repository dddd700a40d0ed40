"""From a checkpoint back to everything that made it, and from a corpus or a document to the checkpoints that saw it."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.assets import checkpoints
from pipeline.cli import main
from pipeline.engine import LocalEngine
from pipeline.flows import train
from pipeline.flows.checkpoint_lineage import run_config
from pipeline.flows.dedup import deduplicate
from pipeline.flows.shards import tokenize
from pipeline.flows.tokenizer import tokenizer
from pipeline.recipe import load_recipe
from pipeline.store import STORE_VARIABLE, Store
from tests.integration.project import TRAINING
from tests.pipeline.flows.corpora import TEXTS, prepare
from trainer import launch
from trainer.loader import TrainingData

ENGINE = LocalEngine(workers=1)
CORPORA = {"first": TEXTS[:15], "second": [*TEXTS[15:30], TEXTS[2]]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    """Two corpora, one document of which is in both, and a run on them that kept its last two of four checkpoints."""
    directory = tmp_path_factory.mktemp("trained")
    store = Store(directory / "store")
    for name, texts in CORPORA.items():
        prepare(store, directory / f"{name}.jsonl", texts)
    settings = {
        "name": "mine",
        "corpora": [{"name": name, "source": {"kind": "files", "paths": [f"{name}.jsonl"]}} for name in CORPORA],
        "quality": "docs",
        "tokenizer": {"vocab_size": 300},
        "shards": {"validation_fraction": 0.2},
        "training": TRAINING,
    }
    (directory / "recipe.yaml").write_text(yaml.safe_dump(settings))
    recipe = load_recipe(directory / "recipe.yaml")
    deduplicate(store, ENGINE, recipe.corpus_names, recipe.dedup)
    tokenizer(store, recipe.name, recipe.corpus_names, recipe.tokenizer, recipe.shards.validation_fraction)
    for name in recipe.corpus_names:
        tokenize(store, ENGINE, name, recipe.shards)
    run = train.plan(store, recipe)
    run.config.run_dir.mkdir(parents=True)
    command = [sys.executable, "-m", "trainer", str(run.write_config()), "training.compile=false", "training.samples.prompts=[]"]
    subprocess.run(command, env={**os.environ, **launch.environment(1)}, check=True, timeout=280)
    return store, run.config.run_dir


@pytest.fixture
def ask(trained: tuple[Store, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`python -m pipeline lineage ...`: what it prints."""
    monkeypatch.setenv(STORE_VARIABLE, str(trained[0].root))

    def said(*arguments: str) -> str:
        assert main(["lineage", *arguments]) == 0
        return capsys.readouterr().out

    return said


def test_a_checkpoint_says_what_it_was_made_from(trained: tuple[Store, Path], ask: Any) -> None:
    store, run = trained
    said, found = ask(f"{run.name[:8]}-00000032"), json.loads(ask(f"{run.name[:8]}-00000032", "--json"))
    scrubbed = store.current("corpora/first/scrubbed")
    assert found["assets"]["corpora/first/scrubbed"]["data_version"] == scrubbed.data_version
    assert found["assets"]["corpora/first/scrubbed"]["params"] == scrubbed.manifest["params"]
    assert found["assets"]["corpora/first/raw"]["inputs"]["source"]
    assert sum(found["training"]["corpus_tokens"].values()) == found["training"]["tokens"] == 16_384
    for words in (scrubbed.data_version[:12], f"{scrubbed.counts['spans']:,} spans", "torch", "vocab_size", "corpus first", "epochs"):
        assert words in said


def test_a_step_whose_weights_were_deleted_still_has_a_lineage(trained: tuple[Store, Path], ask: Any) -> None:
    run = trained[1]
    assert not (run / "checkpoints" / "step-00000008").exists()
    found = json.loads(ask(f"{run.name[:8]}/8", "--json"))
    assert not found["saved"] and sum(found["training"]["corpus_tokens"].values()) == 4096
    saved = json.loads((run / "checkpoints" / "step-00000032" / "lineage.json").read_text())
    assert json.loads(ask(f"{run.name[:8]}/32", "--json"))["training"]["corpus_tokens"] == saved["training"]["corpus_tokens"]


def test_what_is_no_checkpoint_is_answered_with_those_there_are(ask: Any, capsys: pytest.CaptureFixture[str], trained: tuple[Store, Path]) -> None:
    assert main(["lineage", "nothing"]) == 2
    assert f"{trained[1].name[:8]}-00000032" in capsys.readouterr().err
    assert main(["lineage", f"{trained[1].name[:8]}/33"]) == 2
    assert "steps 1 to 32" in capsys.readouterr().err
    assert main(["lineage", "--document", "nothing"]) == 2


def test_a_corpus_names_the_checkpoints_that_saw_it_at_a_version(trained: tuple[Store, Path], ask: Any) -> None:
    raw = trained[0].current("corpora/first/raw").data_version
    found = json.loads(ask("--corpus", "first", "--version", raw[:10], "--json"))
    assert [one["checkpoint"][-8:] for one in found] == ["00000024", "00000032"]
    assert all(one["raw"] == raw and one["tokens"] > 0 for one in found)
    assert json.loads(ask("--corpus", "first", "--version", "0123456789ab", "--json")) == []


def test_a_document_was_trained_on_as_often_as_the_batches_held_it(trained: tuple[Store, Path], ask: Any) -> None:
    store, run = trained
    (decisions,) = [pq.read_table(path).to_pylist() for path in store.current("dedup").files("decisions") if path.name.startswith("first.")]
    config = run_config(run)
    data = TrainingData(config.data, config.training, run / "packing")
    corpora, windows = data.order.windows(0, config.training.curriculum.samples(32))
    answers = [json.loads(ask("--document", row["id"], "--json"))[-1] for row in decisions if row["keep"]]
    trained_on = [one for one in answers if one["split"] == "train"]
    assert trained_on and len(trained_on) < len(answers)
    assert any(one["windows_seen"] for one in trained_on)
    for one in trained_on:
        corpus = data.order.names.index(one["corpus"])
        stream = store.current(f"token_shards/{one['corpus']}").counts["train_tokens"]
        assert 0 <= one["begin"] < one["end"] <= stream
        holding = [window for window in range(data.windows[corpus].num_rows) if window * 64 < one["end"] and window * 64 + 65 > one["begin"]]
        there = windows[(corpora == corpus) & np.isin(windows, holding)]
        assert (one["windows"], one["windows_seen"], one["times"]) == (len(holding), len(np.unique(there)), len(there))
    spans = sorted((one["begin"], one["end"]) for one in trained_on)
    assert spans[0][0] == 0 and all(before[1] == after[0] for before, after in itertools.pairwise(spans))


def test_a_removed_document_says_why_and_was_never_trained_on(trained: tuple[Store, Path], ask: Any) -> None:
    decisions = [row for path in trained[0].current("dedup").files("decisions") for row in pq.read_table(path).to_pylist()]
    removed = next(row for row in decisions if not row["keep"])
    found = json.loads(ask("--document", removed["id"], "--json"))
    assert all(removed["duplicate_of"] in one["rejected"] and one["times"] == 0 for one in found)


def test_the_entry_in_the_ui_says_the_same(trained: tuple[Store, Path]) -> None:
    store = trained[0]
    run = train.plan(store, load_recipe(store.root.parent / "recipe.yaml"))
    message = {"step": 24, "tokens": 24 * 512, "path": "step-00000024", "data_version": "weights"}

    @dg.asset
    def training(context: dg.AssetExecutionContext) -> None:
        checkpoints.record(context, run, message, [])

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([training], instance=instance).success
        event = instance.fetch_materializations(checkpoints.KEY, limit=1).records[0].asset_materialization
    assert event is not None
    rows = {record.data["corpus"]: record.data for record in event.metadata["corpora"].value.records}
    assert sum(row["tokens until then"] for row in rows.values()) == 24 * 512
    assert store.current("corpora/first/raw").data_version.startswith(rows["first"]["raw"])
    assert rows["second"]["kept by quality"] - rows["second"]["kept by dedup"] == 1
    assert "torch" in event.metadata["libraries"].value


def test_reproduce_pins_the_recipe_to_the_step(
    trained: tuple[Store, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store, run = trained
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(store.root.parent / "recipe.yaml"))
    assert main(["reproduce", f"{run.name[:8]}-00000024", "-o", str(tmp_path / "again")]) == 0
    said = capsys.readouterr().out
    recipe = load_recipe(tmp_path / "again" / "recipe.yaml")
    assert recipe.corpora[0].source.model_dump()["paths"] == (str(store.root.parent / "first.jsonl"),)
    assert recipe.training.checkpoint.every_tokens == 24 * 512
    assert "worktree add" in said and "make -C" in said and "sha256sum --check" in said and run.name in said
    sums = (tmp_path / "again" / "SHA256SUMS").read_text()
    assert subprocess.run(["sha256sum", "--check"], input=sums, text=True, cwd=run / "checkpoints" / "step-00000024", check=False).returncode == 0
    again = train.plan(store, recipe)
    assert again.config.run_dir == run  # it is the same run, by everything that decides the weights
