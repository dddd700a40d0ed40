"""Metrics in the trackers of others, with their real packages, offline; and the run's own log file."""

import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster_pipes import encode_param

from tests.trainer.runs import start, write_config
from tests.trainer.steps import ALONE
from tests.trainer.trained import trained
from trainer.config import RunConfig, config_hash, run_identity
from trainer.run.fit import preflight
from trainer.run.records import trackers
from trainer.system import launch
from trainer.system.errors import TrainerError
from trainer.system.run_history import RunHistory

SECRET = "hunter2-hunter2"


def train(settings: dict[str, Any], tmp_path: Path, **changes: Any) -> tuple[int, str]:
    """Trains in a process of its own; the exit status and what it said."""
    training = {**settings["training"], **changes}
    config = write_config({**settings, "training": training}, tmp_path / "config.yaml", tmp_path / "run")
    process = start(config)
    _, said = process.communicate(timeout=300)
    return process.returncode, said


@pytest.fixture(scope="module")
def tracked(
    finished_once: Path, corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A directory with a run that every installed tracker got, stopped after two thirds and resumed: its last
    checkpoint was lost.
    """
    place = tmp_path_factory.mktemp("tracked")
    settings = yaml.safe_load((finished_once / "config.yaml").read_text()) | {"project": "mine"}
    kinds = [kind for kind in trackers.TRACKERS if find_spec(kind)]
    if not kinds:
        pytest.importorskip("wandb")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/mlflow.db")
        patched.setenv("TRACKIO_DIR", str(place / "trackio"))
        patched.setenv("WANDB_MODE", "offline")
        patched.setenv("WANDB_API_KEY", SECRET * 3)
        patched.setenv("HF_TOKEN", SECRET)
        for _ in range(2):
            shutil.rmtree(place / "run" / "checkpoints" / "step-00000012", ignore_errors=True)
            status, said = train(settings, place, sinks=kinds)
            assert status == 0 and "Warning" not in said, said
    assert "resum" in said
    yield place


def losses(run_dir: Path) -> dict[int, float]:
    return {step["step"]: step["loss"] for step in RunHistory(run_dir).steps}


def test_a_missing_package_is_one_sentence_before_anything_is_written(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    config = RunConfig.model_validate(settings | {"training": settings["training"] | {"sinks": ["wandb"]}})
    with pytest.raises(TrainerError, match=re.escape("`.venv/bin/pip install -e '.[wandb]'`")):
        preflight.check(config, ALONE)


def test_a_resumed_run_continues_the_same_curves_in_mlflow(tracked: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tracked}/mlflow.db")
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    assert run.data.params["training.optimizer.kind"] == "muon"
    state = json.loads((tracked / "run/checkpoints/step-00000012/state.json").read_text())
    assert run.data.params["identity"] == config_hash(state["meaning"])
    curve = {point.step: point.value for point in client.get_metric_history(run.info.run_id, "train/loss")}
    assert curve == pytest.approx(losses(tracked / "run"))
    for private in (SECRET, str(tracked / "run")):
        assert private.encode() not in (tracked / "mlflow.db").read_bytes()


def test_mlflow_takes_the_settings_of_stages_and_corpora_of_any_name(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    from mlflow import MlflowClient

    address = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    names = ["cool down (10 %)", "späte, & große", "a//b/../c", "x" * 300, "= \n {}"]
    stages = [{"name": name, "share": 1 / 6} for name in names] + [{"name": "last"}]
    settings["training"] |= {"stages": stages, "sinks": ["mlflow"], "max_tokens": 6 * 256}
    config = RunConfig.model_validate(settings)
    identity = run_identity(config, "fp32", {"prose": "", "code": ""})
    trackers.Trackers(config, identity, tmp_path / "sinks.json", resumed=False).close(complete=True)
    client = MlflowClient(address)
    (run,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    assert run.data.params["training.stages.cool down _10 __.share"] == str(1 / 6)
    assert any("xxx" in key for key in run.data.params)


def test_a_resumed_run_continues_the_same_curves_in_trackio(tracked: Path) -> None:
    pytest.importorskip("trackio")
    with sqlite3.connect(tracked / "trackio" / "mine.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics").fetchall()
    assert len({name for name, _, _ in rows}) == 1
    sent = {step: numbers for _, step, text in rows if "train/loss" in (numbers := json.loads(text))}
    curve = {step: numbers["train/loss"] for step, numbers in sent.items()}
    assert curve == pytest.approx(losses(tracked / "run"))


def test_a_resumed_run_continues_the_same_run_of_wandb_offline(tracked: Path) -> None:
    pytest.importorskip("wandb")
    attempts = sorted((tracked / "run/wandb").glob("offline-run-*"))
    run_id = json.loads((tracked / "run/sinks.json").read_text())["id"]
    assert len(attempts) == 2 and all(path.name.endswith(run_id) for path in attempts)
    for path in (tracked / "run/wandb").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def test_a_tracker_that_does_not_answer_stops_a_new_run_but_not_one_that_resumes(
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:{SECRET}@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    config = RunConfig.model_validate(settings | {"training": settings["training"] | {"sinks": ["mlflow"]}})
    identity = run_identity(config, "fp32", {"prose": "", "code": ""})
    with pytest.raises(TrainerError, match=r"training\.sinks: mlflow cannot be opened") as refused:
        trackers.Trackers(config, identity, tmp_path / "sinks.json", resumed=False)
    assert SECRET not in str(refused.value)
    trackers.Trackers(config, identity, tmp_path / "sinks.json", resumed=True).close(complete=True)
    assert "training continues without it" in caplog.text and SECRET not in caplog.text


def test_a_tracker_without_a_key_is_refused_before_anything_is_written(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    status, said = train(settings, tmp_path, sinks=["wandb"])
    assert status == 2 and said.count("trainer: training.sinks: wandb cannot be opened") == 1
    assert not [path.name for path in (tmp_path / "run").iterdir() if path.name not in (".lock", "wandb")]


# Only the console has these, when a busy machine takes longer than a moment for it.
SIGN_OF_LIFE = re.compile(
    r"(loading|reading|looking for|building|trying|compiling|waiting for) .*|"
    r"training|step \d+: (valida|wri)ting.*"
)


def test_the_log_file_has_what_the_console_said_with_dates_in_all_attempts(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trainer")
    said = [line.partition(" ")[2] for line in train(settings, tmp_path)[1].splitlines()]
    first = (tmp_path / "run" / "log.txt").read_text()
    lasting = [line for line in said if not SIGN_OF_LIFE.fullmatch(line)]
    assert Counter(line[20:] for line in first.splitlines()) == Counter(lasting)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000012")
    trained(settings)
    both = (tmp_path / "run" / "log.txt").read_text()
    assert both.startswith(first) and both.count("complete: 3,072 tokens") == 2
    begins, resumes = (line for line in both.splitlines() if " parameters, " in line)
    facts = (
        r"[\d,]+ parameters, [\d.]+ MFLOP per token, fp32 on cpu, 1 process, attention math; 3,072 tokens, .*"
    )
    assert re.search(rf" begins: {facts}[\d.]+ epochs of prose, [\d.]+ epochs of code", begins)
    assert re.search(rf" resumes from .*/step-00000008: {facts}", resumes)
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in both.splitlines())


def test_under_dagster_the_console_is_quiet_and_the_log_file_is_not_and_says_why_a_run_ended(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the asset starts it, whose log has the same messages."""
    monkeypatch.setenv("DAGSTER_PIPES_CONTEXT", encode_param({"data": {"extras": {}}}))
    messages = {"path": str(tmp_path / "messages.jsonl")}
    monkeypatch.setenv("DAGSTER_PIPES_MESSAGES", encode_param(messages))
    often = {"every_tokens": 256, "micro_batch_size": 4}
    status, said = train(settings, tmp_path, optimizer={"kind": "adamw", "lr": 1e30}, evaluation=often)
    assert status == 2
    logged = (tmp_path / "run" / "log.txt").read_text()
    assert "validation loss" in logged and "validation loss" not in said
    reason = logged.partition(" failed: ")[2]
    assert reason.strip() and reason.strip() == said.partition("trainer: ")[2].strip()
