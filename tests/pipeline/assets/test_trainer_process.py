"""What Dagster does with a trainer: shows what it says, keeps what it saves, starts it again where that may
help, and says why where it does not.
"""

import base64
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from pipeline.assets import checkpoints, progress, trainer_process
from pipeline.assets.asset import user_errors_as_failures
from pipeline.assets.used_recipe import CHECKPOINT, OWN
from pipeline.recipe.sections import LaunchParams
from pipeline.steps.training import plan
from pipeline.steps.training.effort import Stopwatch
from pipeline.steps.training.launcher import Launcher
from pipeline.store.bucket.claim import ClaimLostError
from pipeline.store.store import Store
from tests.integration.project import until
from tests.pipeline.steps.corpora import TEXTS, prepare
from tests.pipeline.steps.training.test_plan import make_shards, recipe
from trainer.system.durable import write_atomically
from trainer.system.run_history import RunHistory, running_mean

BEGIN = """import json, os, signal, sys, time
from pathlib import Path
attempts = Path(__file__).with_name("attempts")
attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
attempt = len(attempts.read_text())
"""
LAST = {
    "kind": "checkpoint",
    "step": 32,
    "tokens": 16_384,
    "loss": 5.0,
    "validation_loss": 5.0,
    "perplexity": 148.4,
    "bits_per_byte": 3.0,
    "data_version": "v",
    "path": "/x",
}
KEY = OWN.asset(CHECKPOINT)
Train = Callable[..., dg.ExecuteInProcessResult]


def sends(*messages: dict[str, Any], after_each: str = "pass") -> str:
    """Python that reports these to Dagster as the trainer does, without what the trainer imports."""
    return f"""from dagster_pipes import open_dagster_pipes
with open_dagster_pipes() as reporter:
    for message in json.loads({json.dumps(json.dumps(messages))}):
        reporter.report_custom_message(message)
        {after_each}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    directory = tmp_path_factory.mktemp("followed")
    store = Store(directory / "store")
    prepare(store, directory / "first.jsonl", TEXTS[:15])
    prepare(store, directory / "second.jsonl", TEXTS[15:])
    make_shards(store, recipe())
    return store


@pytest.fixture
def trains(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Follows a program in the place of the trainer; its attempts are noted beside it."""
    monkeypatch.setattr(trainer_process, "ASK_SECONDS", 0.1)

    def train_with(
        program: str,
        instance: dg.DagsterInstance,
        *under: str,
        wrapper: Sequence[str] = (),
        check_claim: Callable[[], None] = lambda: None,
    ) -> dg.ExecuteInProcessResult:
        script = tmp_path / "program.py"
        script.write_text(BEGIN + program)
        command = (sys.executable, *under, str(script))
        monkeypatch.setattr("trainer.system.launch.command", lambda *_, **__: command)
        params = LaunchParams(kind="command", command=(*wrapper, *command)) if wrapper else LaunchParams()
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        run = plan.plan(store, recipe())

        @dg.asset
        @user_errors_as_failures
        def model(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            trainer_process.TrainerProcess(context, run, Launcher(params, 1), OWN).train(check_claim)
            return dg.MaterializeResult()

        return dg.materialize([model], instance=instance, raise_on_error=False)

    return train_with


def attempts(tmp_path: Path) -> int:
    return len((tmp_path / "attempts").read_text())


def reason(result: dg.ExecuteInProcessResult) -> str:
    (failure,) = [
        event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure
    ]
    assert failure and failure.description
    return failure.description


def entry(instance: dg.DagsterInstance) -> dg.AssetMaterialization:
    (record,) = instance.fetch_materializations(KEY, limit=2).records
    assert record.asset_materialization
    return record.asset_materialization


def test_a_trainer_that_something_stopped_or_that_failed_goes_on_in_another_attempt(
    trains: Train, tmp_path: Path
) -> None:
    program = "if attempt == 1: sys.exit(75)\nif attempt == 2: raise RuntimeError('CUDA error')\n" + sends(
        LAST
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = trains(program, instance)
        assert result.success and attempts(tmp_path) == 3
        assert entry(instance).metadata["step"].value == 32
        said = [event.message for event in instance.all_logs(result.run_id)]
    assert [text for text in said if "restarting the trainer" in text and "exit status 75" in text]
    assert [text for text in said if "restarting the trainer" in text and "RuntimeError: CUDA error" in text]


def test_a_mistake_of_the_users_is_told_in_the_trainers_words_and_not_tried_again(
    trains: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        why = reason(
            trains("print('trainer: no GPU has room for this', file=sys.stderr)\nsys.exit(2)", instance)
        )
    assert (
        why == "the trainer ended with exit status 2. Its last lines:\ntrainer: no GPU has room for this"
        and attempts(tmp_path) == 1
    )
    assert "trainer: no GPU has room for this\n" in capfd.readouterr().err


def test_under_torchrun_the_reason_is_the_trainers_and_not_torchruns(trains: Train) -> None:
    program = "print('trainer: no GPU has room for this', file=sys.stderr)\nsys.exit(2)"
    with dg.DagsterInstance.ephemeral() as instance:
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        why = reason(trains(program, instance, *torchrun, wrapper=("env", "MARK=1")))
    assert why.startswith("the trainer ended with exit status 2") and why.endswith("no GPU has room for this")
    assert "ChildFailedError" not in why


def test_a_mistake_that_ended_torchrun_is_not_tried_again(trains: Train, tmp_path: Path) -> None:
    program = (
        "print('trainer: lower the learning rate', file=sys.stderr, flush=True)\n"
        "os.kill(os.getppid(), signal.SIGTERM)\nsys.exit(2)"
    )
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--max-restarts=3")
    with dg.DagsterInstance.ephemeral() as instance:
        why = reason(trains(program, instance, *torchrun))
    assert why == ("the trainer ended with exit status 2. Its last lines:\ntrainer: lower the learning rate")
    assert attempts(tmp_path) == 1


def test_a_trainer_whose_run_another_machine_may_train_is_stopped(trains: Train, tmp_path: Path) -> None:
    def check_claim() -> None:
        if (tmp_path / "began").exists():
            raise ClaimLostError("this process has lost its claim")

    began = repr(str(tmp_path / "began"))
    with dg.DagsterInstance.ephemeral() as instance:
        began_at = time.monotonic()
        why = reason(trains(f"Path({began}).touch()\ntime.sleep(300)", instance, check_claim=check_claim))
    assert why == "this process has lost its claim" and attempts(tmp_path) == 1
    assert time.monotonic() - began_at < 60


def test_a_command_gets_the_run_and_its_last_lines_are_the_reason_of_a_failure(
    trains: Train, tmp_path: Path
) -> None:
    program = "print('srun: error:', os.environ['MARK'], *sys.argv[1:3], file=sys.stderr)\nsys.exit(3)"
    with dg.DagsterInstance.ephemeral() as instance:
        why = reason(trains(program, instance, wrapper=("env", "MARK=1")))
    assert why == "the trainer ended with exit status 3. Its last lines:\nsrun: error: 1 -m trainer"
    assert attempts(tmp_path) == trainer_process.ATTEMPTS


def test_what_a_trainer_says_itself_is_the_reason(
    trains: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_process, "ATTEMPTS", 1)
    program = (
        sends({"kind": "error", "message": "rank 0: out of memory"})
        + "print('noise', file=sys.stderr)\nsys.exit(1)"
    )
    with dg.DagsterInstance.ephemeral() as instance:
        why = reason(trains(program, instance))
    assert why == "the trainer ended with exit status 1. rank 0: out of memory" and attempts(tmp_path) == 1


@pytest.mark.parametrize("wrapper", [(), ("env", "MARK=1")], ids=["subprocess", "command"])
def test_a_training_that_a_person_ends_is_not_started_again(
    trains: Train, tmp_path: Path, wrapper: tuple[str, ...]
) -> None:
    program = (
        "signal.signal(signal.SIGTERM, lambda *_: "
        "sys.exit(75))\nPath(__file__).with_name('ready').touch()\ntime.sleep(60)"
    )
    with dg.DagsterInstance.ephemeral() as instance:

        def end() -> None:
            until((tmp_path / "ready").exists, 30)
            instance.report_run_canceled(instance.get_runs()[0])

        person = threading.Thread(target=end)
        person.start()
        result = trains(program, instance, wrapper=wrapper)
        person.join()
    assert not result.success and attempts(tmp_path) == 1


def test_training_outlives_a_database_that_is_away(
    trains: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = tmp_path / "back"
    failed: Counter[str] = Counter()
    with dg.DagsterInstance.ephemeral() as instance:

        def fails_at_first(name: str) -> Callable[..., Any]:
            usual = getattr(instance, name)

            def asked(*args: Any, **kwargs: Any) -> Any:
                if back.exists() or not (tmp_path / "attempts").exists():
                    return usual(*args, **kwargs)
                failed[name] += 1
                if len(failed) == 2 and min(failed.values()) > 1:
                    back.touch()
                raise OperationalError("SELECT", {}, Exception("the server is restarting"))

            return asked

        for name in ("get_run_by_id", "fetch_materializations"):
            monkeypatch.setattr(instance, name, fails_at_first(name))
        waits = f"while not Path({str(back)!r}).exists(): time.sleep(0.05)"
        assert trains(sends({**LAST, "step": 8, "tokens": 4096}, LAST, after_each=waits), instance).success
        keys = {
            str(record.partition_key)[-2:] for record in instance.fetch_materializations(KEY, limit=9).records
        }
    assert attempts(tmp_path) == 1 and keys == {"08", "32"}


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


METRICS = {"kind": "metrics", "step": 8, "tokens": 4096, "loss": 6.0, "grad_norm": 1.0, "spike": False}
METRICS |= {"tokens_per_second": 1234.4, "eta_seconds": 90.0}


def shown(instance: dg.DagsterInstance, asset: str = "training_progress") -> list[dict[str, Any]]:
    """What the page of an asset has shown, the newest last."""
    found = instance.fetch_materializations(dg.AssetKey(asset), limit=99).records
    entries = [one.asset_materialization for one in reversed(found)]
    return [{name: data.value for name, data in one.metadata.items()} for one in entries if one]


EVALUATION = {"kind": "evaluation", "step": 8, "tokens": 4096, "loss": 5.0, "perplexity": 148.4}
EVALUATION |= {"bits_per_byte": 3.0}


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


def test_a_training_that_is_stopped_says_what_is_saved(
    trains: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = sends({**LAST, "step": 8, "tokens": 4096}).replace("\n", "\n    ")
    program = f"""def save(*_):
    {saves}
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
Path(__file__).with_name('ready').touch()
time.sleep(60)
"""

    def stop() -> None:
        until((tmp_path / "ready").exists, 30)
        os.kill(os.getpid(), signal.SIGINT)

    person = threading.Thread(target=stop)
    person.start()
    with dg.DagsterInstance.ephemeral() as instance:
        result = trains(program, instance)
        person.join()
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.CANCELED and attempts(tmp_path) == 1
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    saved = "saved at step 8 (4,096 of 16,384 tokens): run the job again to resume"
    assert failure.error and failure.error.message.strip().endswith(saved)


def test_the_seconds_of_a_resumed_training_count_all_its_attempts(tmp_path: Path) -> None:
    first = Stopwatch(tmp_path)
    time.sleep(0.2)
    first.save()
    assert Stopwatch(tmp_path).seconds >= 0.2


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


@pytest.mark.parametrize(("step", "said"), [(12, True), (26, False)])
def test_a_training_that_resumes_beyond_what_it_shares_does_not_continue_from_there(
    step: int, said: bool, trains: Train
) -> None:
    start = {"kind": "start", "parameters": 920_448, "flops_per_token": 4_337_664, "device": "cpu"}
    start |= {"processes": 1, "precision": "bf16", "attention": "math", "tokens_total": 16_384}
    start |= {"epochs": {}, "padding": {}, "resumed_from": f"/runs/b/checkpoints/step-{step:08d}"}
    start |= {"trunks": [{"run": "6ddca120", "step": 12, "tokens": 6_144}]}
    with dg.DagsterInstance.ephemeral() as instance:
        result = trains(sends(start, LAST), instance)
        lines = [event.message for event in instance.all_logs(result.run_id)]
    assert any("continuing from 6ddca120 at step 12" in line for line in lines) == said
