"""From a checkpoint back to all that made it, and from a corpus or document to checkpoints that saw it."""

import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from pipeline.assets import checkpoints
from pipeline.assets.used_recipe import CHECKPOINT, OWN
from pipeline.cli import main
from pipeline.cli.lineage import described
from pipeline.recipe.loading import load_recipe
from pipeline.steps.lineage.checkpoints import LineageError, TrainedModel, read, run_config
from pipeline.steps.lineage.documents import CorpusText
from pipeline.steps.reproduce import reproduce
from pipeline.steps.training import plan
from pipeline.store import keys
from tests.pipeline.steps.corpora import StoredRun
from trainer.data.loader import TrainingData
from trainer.system.paths import STORE_VARIABLE


def test_a_checkpoint_says_what_it_was_made_from(trained: StoredRun, ask: Any) -> None:
    store, run = trained
    said, found = ask(f"{run.name[:8]}-00000032"), json.loads(ask(f"{run.name[:8]}-00000032", "--json"))
    scrubbed = store.current(keys.scrubbed("first"))
    assert found["assets"]["corpora/first/scrubbed"]["data_version"] == scrubbed.data_version
    assert found["assets"]["corpora/first/scrubbed"]["params"] == scrubbed.manifest["params"]
    assert found["assets"]["corpora/first/raw"]["inputs"]["source"]
    assert sum(found["training"]["corpus_tokens"].values()) == found["training"]["tokens"] == 16_384
    for words in (
        scrubbed.data_version[:12],
        f"{scrubbed.counts['spans']:,} spans",
        "torch",
        "vocab_size",
        "corpus first",
        "epochs",
    ):
        assert words in said


def test_a_person_reads_what_differs_from_the_defaults_in_lines_that_fit_the_terminal(
    trained: StoredRun, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = ask(f"{trained[1].name[:8]}-00000032")
    settings = said.partition("settings that differ from the defaults")[2]
    for words in ("profile docs", "validation_fraction 0.2", "vocab_size 300", "max_tokens 16,384"):
        assert words in settings
    for unchanged in ("null", "max_grad_norm", "keep_last 3", "parallel", "dedup", "min_words"):
        assert unchanged not in settings
    assert all(len(line) <= 80 or "/" in line for line in said.splitlines())


def test_a_step_whose_weights_were_deleted_still_has_a_lineage(trained: StoredRun, ask: Any) -> None:
    run = trained[1]
    assert not (run / "checkpoints" / "step-00000008").exists()
    found = json.loads(ask(f"{run.name[:8]}/8", "--json"))
    assert not found["saved"] and sum(found["training"]["corpus_tokens"].values()) == 4096
    saved = json.loads((run / "checkpoints" / "step-00000032" / "lineage.json").read_text())
    assert (
        json.loads(ask(f"{run.name[:8]}/32", "--json"))["training"]["corpus_tokens"]
        == saved["training"]["corpus_tokens"]
    )


def test_what_is_no_checkpoint_is_answered_with_those_there_are(trained: StoredRun, ask: Any) -> None:
    assert f"{trained[1].name[:8]}-00000032" in ask("nothing")
    assert "steps 1 to 32" in ask(f"{trained[1].name[:8]}/33")
    assert ask("--document", "nothing").startswith("error: ")


def test_a_corpus_names_the_checkpoints_that_saw_it_at_a_version(trained: StoredRun, ask: Any) -> None:
    raw = trained[0].current(keys.raw("first")).data_version
    found = json.loads(ask("--corpus", "first", "--version", raw[:10], "--json"))
    assert [one["checkpoint"][-8:] for one in found] == ["00000024", "00000032"]
    assert all(one["raw"] == raw and one["tokens"] > 0 for one in found)
    assert json.loads(ask("--corpus", "first", "--version", "0123456789ab", "--json")) == []


def test_a_document_was_read_at_the_steps_whose_batches_held_it(trained: StoredRun, ask: Any) -> None:
    store, run = trained
    (decisions,) = [
        pq.read_table(path).to_pylist()
        for path in store.current(keys.DEDUP).files("decisions")
        if path.name.startswith("first.")
    ]
    config = run_config(run)
    data = TrainingData(config.data, config.training, run / "packing")
    corpus, curriculum = data.order.names.index("first"), config.training.curriculum
    corpora, windows = data.order.windows(0, curriculum.samples(32))
    text = CorpusText(store, read(run / "checkpoints" / "step-00000032").lineage["assets"], "first")
    spans = {held.document: held for held in text.between(0, text.train_shards[0].num_tokens)}
    kept = [row["id"] for row in decisions if row["keep"]]
    answers = {document: json.loads(ask("--document", document, "--json"))[-1] for document in kept}
    assert 0 < len(spans) < len(kept) and any(one["steps"] for one in answers.values())
    for document, one in answers.items():
        held = spans.get(document)
        fate = "in the training text" if held else "held out for validation"
        assert one["fates"] == {document: fate}
        samples = [
            sample
            for sample, (of, window) in enumerate(zip(corpora, windows, strict=True))
            if held and of == corpus and window * 64 < held.end and window * 64 + 65 > held.begin
        ]
        steps = sorted({curriculum.step_reading(sample) + 1 for sample in samples})
        assert one["steps"] == len(steps)
        assert (one["first"], one["last"]) == ((steps[0], steps[-1]) if steps else (None, None))


def test_a_removed_document_says_why_and_was_never_trained_on(trained: StoredRun, ask: Any) -> None:
    decisions = [
        row
        for path in trained[0].current(keys.DEDUP).files("decisions")
        for row in pq.read_table(path).to_pylist()
    ]
    removed = next(row for row in decisions if not row["keep"])
    found = json.loads(ask("--document", removed["id"], "--json"))
    assert all(removed["duplicate_of"] in one["fates"][removed["id"]] and not one["steps"] for one in found)
    said = ask("--document", removed["id"])
    assert removed["duplicate_of"] in said and "no checkpoint on disk has read them" in said


def entry(trained: StoredRun, checkpoint: Path) -> dict[str, Any]:
    """The metadata of the entry that training adds when the trainer says that it saved step 24 there."""
    store = trained[0]
    run = plan.plan(store, load_recipe(store.root.parent / "recipe.yaml"))
    message = {"step": 24, "tokens": 24 * 512, "path": str(checkpoint), "data_version": "weights"}

    @dg.asset
    def training(context: dg.AssetExecutionContext) -> None:
        checkpoints.record(context, run, message, [], OWN)

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([training], instance=instance).success
        event = (
            instance.fetch_materializations(OWN.asset(CHECKPOINT), limit=1).records[0].asset_materialization
        )
    assert event is not None
    found = {name: value.value for name, value in event.metadata.items()}
    of_corpora = {
        table: {record.data["corpus"]: record.data for record in found[table].records}
        for table in ("corpora", "epochs of corpora")
    }
    return found | of_corpora


def test_the_entry_in_the_ui_says_the_same(trained: StoredRun) -> None:
    store, run = trained
    found = entry(trained, run / "checkpoints" / "step-00000024")
    rows = found["corpora"]
    assert sum(row["tokens until then"] for row in rows.values()) == 24 * 512
    raw = found["epochs of corpora"]["first"]["raw"]
    assert raw and store.current(keys.raw("first")).data_version.startswith(raw)
    assert rows["second"]["kept by quality"] - rows["second"]["kept by dedup"] == 1
    assert (
        f"torch {version('torch')}" in found["libraries"]
        and f"python {platform.python_version()}" in found["libraries"]
    )


def test_a_checkpoint_tells_the_libraries_that_trained_it_and_not_those_of_its_tokenizer(
    trained: StoredRun, tmp_path: Path
) -> None:
    saved = read(trained[1] / "checkpoints" / "step-00000024")
    frozen_long_ago = {"python": "3.10.1", "torch": "1.0"}
    saved.lineage["assets"]["tokenizer"]["tools"] = frozen_long_ago
    (libraries,) = [line for line in described(saved) if line.startswith("libraries")]
    assert f"python {platform.python_version()}" in libraries and f"torch {version('torch')}" in libraries
    commands = reproduce.write(trained[0], saved, out=tmp_path / "again", relative_to=tmp_path)
    assert any(
        line.endswith(f"PYTHON=python{platform.python_version().rpartition('.')[0]}") for line in commands
    )


def test_a_run_without_a_step_is_its_newest_checkpoint_and_an_unknown_one_is_refused(
    trained: StoredRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = trained
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    shutil.copytree(run, store.root / "runs" / ("f" * 16))  # whose checkpoints are last by name
    name = run.name[:8]
    try:
        assert main(["lineage", name]) == 0
        assert f"{name}-00000032" in capsys.readouterr().out
    finally:
        shutil.rmtree(store.root / "runs" / ("f" * 16))
    assert main(["keep", "nosuch"]) == 2
    assert "nosuch: neither a run nor a checkpoint of one. Give " in capsys.readouterr().err


def test_a_corpus_of_which_nothing_was_drawn_yet_was_seen_not_at_all() -> None:
    assets = {"token_shards/first": {"counts": {"train_tokens": 4}}}
    assert TrainedModel({"training": {"corpus_tokens": {}}, "assets": assets}).epochs("first") == 0


# Valid JSON in which only one value has another form.
OTHER_FORMS = [
    b'{"training": {"step": 32}, %s}' % other
    for other in (b'"assets": []', b'"assets": {"tokenizer": "x"}', b'"recipe": "mine"', b'"recipe": null')
]


@pytest.mark.parametrize(
    "content", [None, b"", b'{"training": {', b"{}", b"[]", b"null", b"\xff", *OTHER_FORMS]
)
def test_a_lineage_that_is_missing_or_damaged_is_named_with_the_remedy(
    trained: StoredRun, tmp_path: Path, content: bytes | None
) -> None:
    """Whatever is left of it, every command that reads all checkpoints meets it."""
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00000032"
    shutil.copytree(trained[1] / "checkpoints" / "step-00000032", checkpoint)
    path = checkpoint / "lineage.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LineageError) as raised:
        read(checkpoint)
    said = str(raised.value)
    assert said.startswith(f"{path} is missing or damaged (")
    assert said.endswith(f"): put it back from a copy, or remove {checkpoint}")
