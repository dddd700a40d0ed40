"""What Dagster shows of a training: entries, samples, curves, spikes, and lines of the log."""

import base64
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from pipeline.assets import checkpoints, progress
from pipeline.assets.used_recipe import OWN
from pipeline.steps.training import plan
from pipeline.store.store import Store
from tests.pipeline.assets.training.conftest import KEY, LAST, Train, entry, sends
from tests.pipeline.steps.training.test_plan import recipe
from trainer.system.durable import write_atomically
from trainer.system.run_history import RunHistory, running_mean

METRICS = {"kind": "metrics", "step": 8, "tokens": 4096, "loss": 6.0, "grad_norm": 1.0, "spike": False}
METRICS |= {"tokens_per_second": 1234.4, "eta_seconds": 90.0}
EVALUATION = {"kind": "evaluation", "step": 8, "tokens": 4096, "loss": 5.0, "perplexity": 148.4}
EVALUATION |= {"bits_per_byte": 3.0}


def test_samples_of_a_later_step_are_shown_with_its_checkpoint(trains: Train) -> None:
    sample = {"kind": "sample", "step": 32, "tokens": 16_384, "prompt": "Return the", "text": "value of x"}
    with dg.DagsterInstance.ephemeral() as instance:
        assert trains(sends(sample, {**LAST, "step": 8, "tokens": 4096}, LAST), instance).success
        shown = {
            record.partition_key: record.asset_materialization
            for record in instance.fetch_materializations(KEY, limit=9).records
        }
    found = {str(key)[-2:]: [*one.metadata] if one else [] for key, one in shown.items()}
    assert "samples" not in found["08"] and found["32"][0] == "samples"


def test_no_table_of_a_checkpoint_is_wider_than_its_page(trains: Train) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert trains(sends(LAST), instance).success
        (entry,) = shown(instance, "checkpoint")
    tables = [one for one in entry.values() if isinstance(one, dg.TableMetadataValue)]
    assert {row.data["corpus"] for one in tables for row in one.records} == {"first", "second"}
    for row in (row.data for one in tables for row in one.records):
        # of 690 pixels at a window of 1,400: 8 a character, 18 around each column
        assert sum(8 * max(len(name), len(str(value))) + 18 for name, value in row.items()) < 690


def test_a_checkpoint_that_was_deleted_and_is_saved_again_has_a_new_entry(
    trains: Train, store: Store, tmp_path: Path
) -> None:
    saved = tmp_path / "step-00000032"
    with dg.DagsterInstance.ephemeral() as instance:
        for entries, exists in ((1, True), (1, True), (1, False), (2, True)):
            saved.mkdir(exist_ok=True)
            if not exists:
                saved.rmdir()
            assert trains(sends({**LAST, "path": str(saved)}), instance).success
            assert len(instance.fetch_materializations(KEY, limit=9).records) == entries


def shown(instance: dg.DagsterInstance, asset: str = "training_progress") -> list[dict[str, Any]]:
    """What the page of an asset has shown, the newest last."""
    found = instance.fetch_materializations(dg.AssetKey(asset), limit=99).records
    entries = [one.asset_materialization for one in reversed(found)]
    return [{name: data.value for name, data in one.metadata.items()} for one in entries if one]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of the trainer has an entry."""
    monkeypatch.setattr(progress, "LEAST_SECONDS", 0)
    monkeypatch.setattr(progress, "SHARE", 1e9)


@pytest.mark.usefixtures("at_once")
def test_a_page_shows_the_run_while_it_trains_and_the_model_is_not_made_before_it_is(trains: Train) -> None:
    sample = {"kind": "sample", "step": 8, "tokens": 4096, "prompt": "Return the", "text": "value of x"}
    with dg.DagsterInstance.ephemeral() as instance:
        assert trains(sends(METRICS, EVALUATION, sample, LAST), instance).success
        first, validated, *_, last, end = shown(instance)
        assert shown(instance, "model") == [{}]  # what the asset itself says in the end
    assert first["status"] == "training, 25% done, 1.5 min left"
    assert (first["training loss"], first["tokens/s"], first["step"]) == (6.0, 1234, 8)
    assert validated["validation loss"] == 5.0
    assert last["last validation"] == "5.0000 at step 8" and "value of x" in last["sample"]
    assert (end["status"], end["step"]) == ("done: pretrained_model shows the model", 32)


@pytest.mark.usefixtures("at_once")
def test_the_validation_in_an_entry_is_that_of_its_step(trains: Train) -> None:
    later = {**EVALUATION, "step": 16, "tokens": 8192, "loss": 4.0}
    with dg.DagsterInstance.ephemeral() as instance:
        messages = (METRICS, later, {**METRICS, "step": 17, "tokens": 8704}, LAST)
        assert trains(sends(*messages), instance).success
        entries = {one["step"]: one for one in shown(instance)}
    assert "validation loss" not in entries[8] and "last validation" not in entries[8]
    assert entries[16]["validation loss"] == 4.0
    assert (entries[16]["tokens"], entries[16]["status"][:18]) == (8192, "training, 50% done")
    assert "validation loss" not in entries[17] and entries[17]["last validation"] == "4.0000 at step 16"


@pytest.mark.usefixtures("at_once")
def test_the_loss_in_an_entry_is_where_its_curve_ends_and_no_spike(
    trains: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = [6.0] * 79 + [9.0]
    rows = [{"kind": "train", "step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    monkeypatch.setattr(RunHistory, "records", property(lambda run: rows[: run.until_step]))
    with dg.DagsterInstance.ephemeral() as instance:
        assert trains(sends({**METRICS, "step": 80, "loss": 9.0}, LAST), instance).success
        entry = next(one for one in shown(instance) if one["step"] == 80)
        (saved,) = shown(instance, "checkpoint")
    smoothed = running_mean(losses)[-1]
    assert entry["training loss"] == round(smoothed, 4) < 8
    assert f">{smoothed:.3f}<" in base64.b64decode(entry["loss so far"].partition("base64,")[2][:-1]).decode()
    assert saved["training loss"] == 6.0  # up to its own step, 32


def test_the_page_of_the_model_says_why_a_training_ended(trains: Train) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        said = {"kind": "error", "message": "the loss is not a number"}
        assert not trains(sends(METRICS, said) + "\nsys.exit(2)", instance).success
        assert shown(instance)[-1]["status"].endswith("exit status 2. the loss is not a number")


def test_a_long_training_adds_few_entries(trains: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    entries: list[float] = []
    monkeypatch.setattr(progress.Progress, "_show", lambda self, status: entries.append(clock[0]))
    config = SimpleNamespace(config=SimpleNamespace(training=SimpleNamespace(max_tokens=10**6)))
    following = progress.Progress(dg.build_asset_context(), config, OWN)  # type: ignore[arg-type]
    for second in range(0, 7 * 24 * 3600, 5):
        clock[0] = second
        following.take(METRICS)
    assert sum(one < 3600 for one in entries) <= 120 and len(entries) <= 300
    assert entries[-1] > 6.7 * 24 * 3600


def test_checkpoints_of_a_finished_training_get_the_entries_that_were_wiped(store: Store) -> None:
    """A new DAGSTER_HOME with the old store lacks them, too."""
    run = plan.plan(store, recipe())
    saved = run.config.run_dir / "checkpoints" / "step-00000032"
    evaluation = {name: LAST[name] for name in ("perplexity", "bits_per_byte")} | {"loss": 5.0}
    state = {name: LAST[name] for name in ("step", "tokens", "loss")} | {"evaluation": evaluation}
    write_atomically(saved / "state.json", json.dumps(state))
    files = {"hf/model.safetensors": {"size": 1, "sha256": "0" * 64}}
    write_atomically(saved / "manifest.json", json.dumps({"files": files}))
    damaged = saved.with_name("step-00000016")
    write_atomically(damaged / "manifest.json", json.dumps({"files": {}}))

    @dg.asset
    def model(context: dg.AssetExecutionContext) -> None:
        checkpoints.record_saved(context, run, OWN)

    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            assert dg.materialize([model], instance=instance).success
        first = entry(instance)  # a single one
        assert first.metadata["bits per byte"].value == 3.0 and first.metadata["on disk"].value == "yes"
        instance.wipe_assets([KEY])
        again = dg.materialize([model], instance=instance)
        assert entry(instance) == first and first.partition == f"{run.name}-00000032"
        said = [
            event.message for event in instance.all_logs(again.run_id) if "gets no entry" in event.message
        ]
    assert len(said) == 1 and said[0].startswith(str(damaged))
    shutil.rmtree(saved.parent)  # other tests train this run


def test_spikes_are_logged_and_one_alert_is_sent(
    trains: Train, webhook: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, received = webhook
    monkeypatch.setenv("GROUNDWORK_WEBHOOK", address)
    spike = {"kind": "metrics", "step": 8, "tokens": 4096, "loss": 9.5, "grad_norm": 70.0, "spike": True}
    spike |= {"tokens_per_second": 1.0, "eta_seconds": 1.0}
    with dg.DagsterInstance.ephemeral() as instance:
        # more often than the trainer reports its usual figures
        result = trains(sends(spike, {**spike, "step": 9}, LAST), instance)
        said = [event.message for event in instance.all_logs(result.run_id) if "loss spike" in event.message]
    assert len(said) == 2
    (text,) = [message["text"].partition(": loss")[2] for message in received]
    assert text.startswith(" spike at step 8: loss 9.500, gradient norm 70.000; `python -m pipeline lineage ")
    assert "-00000008 --step 8 --losses`" in text


def test_the_log_of_a_training_says_in_lines_what_the_trainer_reports(trains: Train) -> None:
    metrics = {"kind": "metrics", "step": 8, "tokens": 4096, "loss": 6.0, "grad_norm": 1.0, "spike": False}
    metrics |= {"tokens_per_second": 1234.4, "eta_seconds": 90.0}
    start = {"kind": "start", "parameters": 920_448, "flops_per_token": 4_337_664, "device": "cpu"}
    start |= {"processes": 1, "precision": "bf16", "attention": "math", "tokens_total": 16_384}
    start |= {"epochs": {"first": 0.123456}, "padding": {"first": 0.0}, "resumed_from": None, "trunks": []}
    with dg.DagsterInstance.ephemeral() as instance:
        result = trains(sends(start, metrics, LAST), instance)
        said = {event.message for event in instance.all_logs(result.run_id)}
    tokens = f"{recipe().training.max_tokens:,} tokens"
    assert said >= {
        "begins: 920,448 parameters, 4.3 MFLOP per token, bf16 on cpu, 1 process, attention math; "
        "16,384 tokens, 0.12 epochs of first",
        f"4,096 of {tokens}: loss 6.000, 1,234 tokens/s, 1.5 min left",
        f"16,384 of {tokens}: checkpoint /x",
    }
