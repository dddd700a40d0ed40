"""Whole runs: killed, stopped, damaged or repeated, they end in the same bytes."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from tests.trainer.parallel.processes import sending, train
from tests.trainer.runs import ROOT, TIMING_FIELDS, history, outcome, start, write_config
from tests.trainer.steps import after_each_step
from tests.trainer.trained import trained
from trainer.checkpoint import publish, retention
from trainer.config import RunConfig, load_run_config
from trainer.model.llama import Llama
from trainer.run.evaluation import validation
from trainer.run.loop import DONE, run
from trainer.run.objectives import loss_sum
from trainer.run.session import Session
from trainer.system import launch
from trainer.system.durable import read_json_lines
from trainer.system.errors import RESUMABLE, TrainerError
from trainer.system.run_directory import RunDirectory


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
        time.sleep(0.002)


@pytest.mark.parametrize("packing", ["windows", pytest.param("documents", marks=pytest.mark.slow)])
def test_a_run_killed_or_stopped_anywhere_ends_in_the_same_bytes(
    settings: dict[str, Any], tmp_path: Path, packing: str
) -> None:
    settings["training"] |= {"max_tokens": 24 * 256, "packing": packing}
    trained(settings, tmp_path / "whole")
    run_dir = tmp_path / "run"

    def logged() -> int:
        return len(read_json_lines(run_dir / "metrics.jsonl"))

    def saving() -> bool:
        return bool(list(run_dir.glob("checkpoints/.step-*.tmp")))

    stopped = sending(signal.SIGTERM, lambda: logged() >= 7)
    assert train(settings, run_dir, 1, during=stopped) == [RESUMABLE]
    before = logged()
    killed = sending(signal.SIGKILL, lambda: saving() and logged() != before)
    assert train(settings, run_dir, 1, during=killed) == [-signal.SIGKILL]
    trained(settings)
    assert outcome(run_dir) == outcome(tmp_path / "whole")


def test_the_same_configuration_gives_the_same_bytes_in_bf16_too(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings["training"] |= {"precision": "bf16", "document_masking": True, "packing": "best_fit"}
    one, two = (outcome(trained(settings, tmp_path / name).run_dir) for name in ("one", "two"))
    assert one == two


def test_a_damaged_newest_checkpoint_is_named_and_the_run_goes_on_from_the_one_before(
    finished: RunConfig, finished_once: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is a stray file taken for the optimizer's state."""
    before, newest = publish.existing(finished.run_dir / "checkpoints")
    (newest / "optimizer.safetensors").write_bytes(b"damaged")
    shutil.copy(before / "optimizer.safetensors", before / "optimizer-old.safetensors")
    assert run(finished) == DONE
    assert f"{newest}/optimizer.safetensors" in caplog.text
    assert outcome(finished.run_dir) == outcome(finished_once)


def test_an_older_damaged_checkpoint_hinders_nobody(finished: RunConfig, finished_once: Path) -> None:
    older, _ = publish.existing(finished.run_dir / "checkpoints")
    (older / "state.json").write_text("{")
    (older / "manifest.json").unlink()
    assert run(finished) == DONE
    assert outcome(finished.run_dir) == outcome(finished_once)


def test_a_run_none_of_whose_checkpoints_can_be_used_is_not_begun_anew_unasked(
    finished: RunConfig, finished_once: Path
) -> None:
    for checkpoint in publish.existing(finished.run_dir / "checkpoints"):
        (checkpoint / "manifest.json").write_text("{")
    says = r"no checkpoint in .*checkpoints can be resumed: .*manifest.json cannot be read"
    with pytest.raises(TrainerError, match=f"{says}.* Delete the directory to start over"):
        run(finished)
    assert history(finished.run_dir) == history(finished_once)


def test_a_signal_in_an_evaluation_ends_it_and_the_next_start_makes_up_for_it(
    config: RunConfig, finished_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stopped_by(model: Llama, *others: Any) -> torch.Tensor:
        asked.append("batch")
        os.kill(os.getpid(), signal.SIGTERM)
        return loss_sum(model, *others)

    with monkeypatch.context() as patched:
        patched.setattr(validation, "loss_sum", stopped_by)
        for times in (1, 2, 3):  # also of the one that makes up for it
            assert run(config) == RESUMABLE
            assert asked == ["batch"] * times
            assert publish.existing(config.run_dir / "checkpoints")[-1].name == "step-00000006"
    assert run(config) == DONE
    assert outcome(config.run_dir) == outcome(finished_once)


def test_a_profiled_run_traces_three_steps_and_trains_the_same(
    config: RunConfig, finished_once: Path
) -> None:
    assert run(config, profile=True) == DONE
    trace = json.loads((config.run_dir / "profile/steps-3-5.json").read_text())
    events = {event["name"] for event in trace["traceEvents"]}
    assert len([name for name in events if name.startswith("ProfilerStep#")]) == 3 and "aten::mm" in events
    assert outcome(config.run_dir) == outcome(finished_once)


def test_a_complete_run_is_only_reported_again(finished: RunConfig, caplog: pytest.LogCaptureFixture) -> None:
    files = {path: path.stat().st_mtime_ns for path in finished.run_dir.rglob("*") if path.is_file()}
    with caplog.at_level("INFO", logger="trainer"):
        assert run(finished) == DONE
    assert "complete" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in finished.run_dir.rglob("*") if path.is_file()} == files


def test_other_settings_or_other_shards_in_the_same_run_directory_are_refused(
    settings: dict[str, Any], finished: RunConfig
) -> None:
    settings["training"]["seed"] = 6
    with pytest.raises(TrainerError, match=r"training\.seed: 5 -> 6"):
        run(RunConfig.model_validate(settings))
    settings["training"]["seed"] = 5
    settings["data"]["corpora"][0]["train"].reverse()
    with pytest.raises(TrainerError, match=r"data\.corpora\.prose\.shards"):
        run(RunConfig.model_validate(settings))


def test_changed_settings_go_on_by_an_explicit_word_and_leave_a_trace(
    settings: dict[str, Any], finished: RunConfig
) -> None:
    settings["training"]["max_tokens"] = 16 * 256
    settings["data"]["corpora"][0]["weight"] = 1
    longer = RunConfig.model_validate(settings)
    with pytest.raises(TrainerError, match=r"training\.max_tokens: 3072 -> 4096\)\. .*--allow-changes"):
        run(longer)
    assert run(longer, allow_changes=True) == DONE
    lineage = json.loads((finished.run_dir / "checkpoints/step-00000016/lineage.json").read_text())[
        "training"
    ]
    assert [change["step"] for change in lineage["changes"]] == [12]
    assert "training.max_tokens: 3072 -> 4096" in lineage["changes"][0]["changed"]
    # 12 steps of 8 windows at 3 : 1, then 4 at 1 : 1.
    assert lineage["corpus_tokens"] == {"prose": (72 + 16) * 32, "code": (24 + 16) * 32}
    assert run(longer) == DONE
    settings["training"]["seq_len"] = 16
    with pytest.raises(TrainerError, match=r"cannot resume.*: training\.seq_len: 32 -> 16 changed"):
        run(RunConfig.model_validate(settings), allow_changes=True)


def test_a_checkpoint_holds_what_made_it(finished_once: Path) -> None:
    checkpoints = publish.existing(finished_once / "checkpoints")
    assert [path.name for path in checkpoints] == ["step-00000008", "step-00000012"]
    last = checkpoints[-1]
    lineage = json.loads((last / "lineage.json").read_text())
    assert lineage["recipe"] == "test"
    assert (lineage["training"]["step"], lineage["training"]["tokens"]) == (12, 12 * 256)
    assert lineage["training"]["corpus_tokens"] == {"prose": 72 * 32, "code": 24 * 32}
    state = json.loads((last / "state.json").read_text())
    assert state["evaluation"]["bits_per_byte"] > 0
    assert state["samples"] == 12 * 8
    assert load_file(last / "hf/model.safetensors")["model.embed_tokens.weight"].shape == (300, 32)


def test_a_run_leaves_metrics_a_curve_and_tensorboard_events(config: RunConfig, finished_once: Path) -> None:
    records = read_json_lines(finished_once / "metrics.jsonl")
    assert [record["step"] for record in records if record["kind"] == "train"] == list(range(1, 13))
    assert [record["step"] for record in records if record["kind"] == "evaluation"] == [6, 12]
    for field in ("tokens", "loss", "lr", "grad_norm", "param_norm", "spike", *TIMING_FIELDS):
        assert isinstance(records[0][field], int | float)
    peak = config.training.optimizer
    for record in (record for record in records if record["kind"] == "train"):
        assert record["muon_lr"] / peak.muon_lr == pytest.approx(record["lr"] / peak.lr)
    assert records[1]["lr"] == peak.lr
    assert (finished_once / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert list((finished_once / "tensorboard").glob("events*"))


def test_whoever_may_read_new_files_may_read_all_that_a_run_leaves(finished_once: Path) -> None:
    """Of a store that a team shares, and of a model that a server reads as another user."""
    (finished_once / "another").touch()
    usual = (finished_once / "another").stat().st_mode
    left = [path for path in finished_once.rglob("*") if path.is_file()]
    assert any(path.suffix == ".safetensors" for path in left)
    assert [path.name for path in left if path.stat().st_mode != usual] == []


def test_a_checkpoint_that_cannot_be_written_is_named(config: RunConfig) -> None:
    config.run_dir.mkdir()
    (config.run_dir / "checkpoints").write_text("in the way")
    with pytest.raises(TrainerError, match=r"step-00000004: cannot be saved .*see to it that it can be"):
        run(config)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's writer
def test_a_run_whose_directory_is_removed_while_it_trains_says_so(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(session: Session) -> None:
        if session.step == 2:
            shutil.rmtree(config.run_dir)

    after_each_step(monkeypatch, remove)
    with pytest.raises(
        TrainerError, match=r"run: removed while the run trained, with its checkpoints; run ag"
    ):
        run(config)


def test_a_checkpoint_that_is_removed_as_soon_as_it_is_saved_is_named(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "retire", lambda newest, *_: shutil.rmtree(newest))
    with pytest.raises(
        TrainerError, match=r"step-00000004.* leave the run's directory alone while it trains"
    ):
        run(config)


def test_a_file_in_the_place_of_tensorboards_directory_is_named(config: RunConfig) -> None:
    config.run_dir.mkdir()
    (config.run_dir / "tensorboard").write_text("in the way")
    with pytest.raises(TrainerError, match=r"run/tensorboard: File exists: this file of the run cannot be"):
        run(config)


def test_two_trainers_never_share_a_run_directory(config: RunConfig) -> None:
    directory = RunDirectory(config.run_dir)
    refused = pytest.raises(TrainerError, match=r"another trainer is using this run .* Only torchrun makes")
    with directory.locked(), refused, directory.locked(patience_seconds=0.3):
        pass
    with directory.locked(patience_seconds=0):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["windows", "documents"])
def test_two_processes_train_the_same_model_as_one(
    settings: dict[str, Any], tmp_path: Path, packing: str
) -> None:
    settings["training"] |= {"optimizer": {"kind": "adamw", "lr": 1e-3, "eps": 1e-4}, "packing": packing}
    trained(settings, tmp_path / "one")
    config = write_config(settings, tmp_path / "two.yaml", tmp_path / "two")
    environment = {**os.environ, **launch.environment(1)}
    subprocess.run(
        launch.command(config, processes=2), cwd=ROOT, env=environment, check=True, capture_output=True
    )
    one, two = history(tmp_path / "one"), history(tmp_path / "two")
    for ours, theirs in zip(one, two, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    file = "checkpoints/step-00000012/hf/model.safetensors"
    weights, others = (load_file(tmp_path / name / file) for name in ("one", "two"))
    for name, tensor in weights.items():
        assert abs(tensor - others[name]).max() < 1e-5


def test_a_mistake_is_one_message_and_exit_code_2(settings: dict[str, Any], tmp_path: Path) -> None:
    config = write_config(settings, tmp_path / "run.yaml", tmp_path / "run")
    process = start(config, "training.optimizer.learning_rate=1")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.startswith("trainer: ") and len(errors.splitlines()) == 1
    assert "unknown key 'learning_rate'" in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param("data.tokenizer_sha256=other", "the token shards were made with other", id="preflight"),
        pytest.param(
            "training.optimizer.lr=1e30", "lower the learning rate", marks=pytest.mark.slow, id="nan"
        ),
        pytest.param("training.lr=1", "unknown key 'lr'", marks=pytest.mark.slow, id="settings"),
    ],
)
def test_a_mistake_ends_torchrun_once_with_one_message(
    settings: dict[str, Any], tmp_path: Path, changed: str, says: str
) -> None:
    settings["training"]["optimizer"] = {"kind": "adamw", "max_grad_norm": None}
    config = write_config(settings, tmp_path / "two.yaml", tmp_path / "two")
    command = [*launch.command(config, processes=2), changed]
    environment = {**os.environ, **launch.environment(1)}
    process = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, stderr=subprocess.PIPE, text=True
    )
    (message,) = (line for line in process.stderr.splitlines() if line.startswith("trainer: "))
    assert says in message and process.returncode == 2
    assert "Traceback" not in process.stderr and "torch/distributed/elastic" not in process.stderr


@pytest.mark.slow
def test_torchrun_ends_with_the_status_of_the_trainer_and_a_sentence(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings["training"] |= {"max_tokens": 4000 * 256, "checkpoint": {"every_tokens": 4000 * 256}}
    config = write_config(settings, tmp_path / "two.yaml", tmp_path / "two")
    environment = {**os.environ, **launch.environment(1)}
    for number, status, says in (
        (signal.SIGTERM, RESUMABLE, "run again to resume"),
        (signal.SIGKILL, 128 + signal.SIGKILL, "process 0 was ended by SIGKILL, most likely because memory"),
    ):
        command = [*launch.command(config, processes=2), "training.log_every_steps=1"]
        command = [part.replace("--max-restarts=3", "--max-restarts=0") for part in command]
        (tmp_path / "two" / "metrics.jsonl").unlink(missing_ok=True)
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: bool(read_json_lines(tmp_path / "two" / "metrics.jsonl")), process)
        if number == signal.SIGKILL:
            (first, *_) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(first), number)
        else:
            process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == status and says in errors, errors
        if number == signal.SIGTERM:
            assert "Traceback" not in errors and "torch/distributed/elastic" not in errors


def test_settings_given_relative_to_a_directory_hold_from_any(
    settings: dict[str, Any], corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(corpus_dir)
    settings["data"]["tokenizer"] = "tokenizer"
    trained(settings)
    monkeypatch.chdir(tmp_path)
    assert run(load_run_config(Path(settings["run_dir"]) / "config.yaml")) == DONE


def test_a_run_directory_that_cannot_be_written_to_is_said(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainerError, match=r"run_dir .*file/run is not writable: Not a directory"):
        run(RunConfig.model_validate({**settings, "run_dir": str(tmp_path / "file/run")}))
