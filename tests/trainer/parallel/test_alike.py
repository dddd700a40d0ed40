"""All processes train the same with the same code, or none begins; and none waits in vain for another."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.project import until
from tests.trainer.parallel.processes import together
from tests.trainer.runs import ROOT, write_config
from trainer import __main__
from trainer.config import RunConfig
from trainer.run.loop import run
from trainer.run.session import Session
from trainer.run.step import StepResult
from trainer.system import launch
from trainer.system.errors import PROCESS_LOST, ProcessLostError, TrainerError


def _told(settings: dict[str, Any], others: dict[str, Any], pytorch: str, place: Path) -> None:
    """Trains, in the second process with other settings. Writes what a TrainerError says."""
    rank = os.environ["RANK"]
    if rank == "1":
        settings["training"] |= others
        torch.__version__ = pytorch
    try:
        run(RunConfig.model_validate({**settings, "run_dir": str(place / "run")}))
    except TrainerError as error:
        (place / rank).write_text(str(error))


@pytest.mark.parametrize(
    ("others", "pytorch", "said"),
    [
        ({"optimizer": {"kind": "adamw", "lr": 0.5}}, torch.__version__, "training.optimizer.lr 0.5, and"),
        ({"parallel": {"dp_shard": 2}}, torch.__version__, "training.parallel.dp_shard 2, and the main"),
        ({"evaluation": {"every_tokens": 256}}, torch.__version__, "training.evaluation.every_tokens 256, "),
        ({}, "1.13.0", f"PyTorch 1.13.0, and the main process has {torch.__version__}: give all processes"),
    ],
)
def test_a_process_with_other_settings_or_code_is_named_before_anything_is_trained(
    settings: dict[str, Any], tmp_path: Path, others: dict[str, Any], pytorch: str, said: str
) -> None:
    settings["training"] |= {"optimizer": {"kind": "adamw", "lr": 0.001}, "parallel": {"timeout_seconds": 60}}
    others = {name: settings["training"].get(name, {}) | value for name, value in others.items()}
    assert together(_told, 2, settings, others, pytorch, tmp_path) == [0, 0]
    for rank in ("0", "1"):
        assert f"process 1 on {socket.gethostname()} has {said}" in (tmp_path / rank).read_text()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_processes_may_have_other_cores(settings: dict[str, Any], tmp_path: Path) -> None:
    one = settings["training"]["global_batch_tokens"]
    settings["training"] |= {"max_tokens": one, "schedule": {}, "threads": 2}
    assert together(_told, 2, settings, {"threads": 1}, torch.__version__, tmp_path) == [0, 0]
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1


def test_a_process_that_lacks_the_tokens_is_heard_by_all(settings: dict[str, Any], tmp_path: Path) -> None:
    assert together(_without_tokens, 2, settings, tmp_path) == [0, 0]
    assert {(tmp_path / rank).read_text() for rank in ("0", "1")} == {(tmp_path / "0").read_text()}
    assert "nowhere.idx: no such file" in (tmp_path / "0").read_text()


def _without_tokens(settings: dict[str, Any], place: Path) -> None:
    if os.environ["RANK"] == "1":
        settings["data"]["corpora"][0]["train"] = [str(place / "nowhere")]
    _told(settings, {}, torch.__version__, place)


@pytest.mark.parametrize(
    ("parallel", "seconds", "why"),
    [
        pytest.param({}, 0, "closed|reset", id="which died"),
        pytest.param({"dp_shard": 2}, 12, "Timed out waiting", id="which hangs", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_has_lost_another_says_so_in_a_sentence(
    settings: dict[str, Any], tmp_path: Path, parallel: dict[str, int], seconds: int, why: str
) -> None:
    settings["training"] |= {"optimizer": {"kind": "adamw"}, "parallel": {"timeout_seconds": 6, **parallel}}
    assert together(_without_the_other, 2, settings, seconds, tmp_path) == [0, 9]
    lost = f"process 0 on {socket.gethostname()} has lost another process of this training"
    assert re.fullmatch(rf"{lost} \(.*({why}).*", (tmp_path / "0").read_text())


def test_torchrun_is_left_the_time_to_tell_of_the_process_that_was_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loses(_: list[str]) -> int:
        raise ProcessLostError("process 0 has lost another")

    monkeypatch.setattr(__main__, "_train", loses)
    begun = time.monotonic()
    assert __main__._ended(["run.yaml"]) == PROCESS_LOST
    assert time.monotonic() - begun > 0.5  # it looks ten times a second
    assert capsys.readouterr().err == "trainer: process 0 has lost another\n"


def _without_the_other(settings: dict[str, Any], seconds: int, place: Path) -> None:
    """Trains. The second process ends, after so many seconds, in place of its second step."""
    if os.environ["RANK"] == "1":
        take_step = Session.take_step

        def ends(session: Session, windows: torch.Tensor) -> StepResult:
            if session.step == 0:
                return take_step(session, windows)
            time.sleep(seconds)
            os._exit(9)

        Session.take_step = ends
    try:
        run(RunConfig.model_validate({**settings, "run_dir": str(place / "run")}))
    except ProcessLostError as error:
        (place / "0").write_text(str(error))


def test_each_machine_says_that_its_configuration_is_missing(tmp_path: Path) -> None:
    for neighbor, lines in (("0", 1), ("1", 0)):
        ranks = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": neighbor}
        environment = {**os.environ, **launch.environment(1), **ranks}
        command = [sys.executable, "-m", "trainer", str(tmp_path / "missing.yaml")]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr.count("missing.yaml: cannot be read as YAML: No such file") == lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_waits_for_another_ends_when_it_is_told(
    settings: dict[str, Any], tmp_path: Path, number: signal.Signals
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = launch.command(write_config(settings, tmp_path / "run.yaml", tmp_path / "run"))
    waiting = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **launch.environment(1), **ranks})

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        until(listens, 120, waiting.poll)
        waiting.send_signal(number)
        assert waiting.wait(20) == -number
    finally:
        waiting.kill()
