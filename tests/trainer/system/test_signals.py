"""A signal stops a run: at once while there is nothing to save, else after the step, and again at once."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.project import until
from tests.pipeline.steps.training.test_process_group import is_running
from tests.trainer.runs import ROOT, start, write_config
from trainer.system.errors import RESUMABLE
from trainer.system.run_directory import RunDirectory
from trainer.system.signals import STOPPING, StopSignals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_before_the_first_step_ends_the_trainer_at_once(
    settings: dict[str, Any], tmp_path: Path, number: signal.Signals
) -> None:
    config = write_config(settings, tmp_path / "run.yaml", tmp_path / "run")
    with RunDirectory(tmp_path / "run").locked():
        process = start(config)
        assert process.stderr
        while "waiting 60 s" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == RESUMABLE
    assert (
        "stopped before this start took a step, with nothing new to save" in errors
        and "Traceback" not in errors
    )
    assert not (tmp_path / "run" / "checkpoints").exists()


STEPS = """
import os, signal, sys, time
from trainer.system.signals import StopSignals
with StopSignals() as stop:
    stop.after_step()
    for number, pause in zip(sys.argv[1::2], sys.argv[2::2]):
        os.kill(os.getpid(), int(number))
        time.sleep(float(pause))
    print("saved" if stop.received else "undisturbed")
"""


def stopped(*signals: tuple[signal.Signals, float], ignored: signal.Signals | None = None) -> tuple[int, str]:
    """The exit status and the output of a process that gets signals in a step, each with a pause after it."""

    def as_in_a_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where nohup started the tests
        if ignored:
            signal.signal(ignored, signal.SIG_IGN)

    process = subprocess.run(
        [
            sys.executable,
            "-c",
            STEPS,
            *(str(float(part)).removesuffix(".0") for one in signals for part in one),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=as_in_a_terminal,
    )
    return process.returncode, process.stdout.strip()


def test_a_second_ctrl_c_ends_a_run_that_does_not_get_to_save() -> None:
    assert stopped((signal.SIGINT, 1.1), (signal.SIGINT, 0)) == (-signal.SIGINT, "")
    # One Ctrl-C that arrives twice, or the pipeline's SIGTERM after it, still saves.
    assert stopped((signal.SIGINT, 0), (signal.SIGINT, 0), (signal.SIGTERM, 0)) == (0, "saved")


def test_a_closed_terminal_saves_unless_the_run_was_to_outlive_it() -> None:
    assert stopped((signal.SIGHUP, 0)) == (0, "saved")
    assert stopped((signal.SIGHUP, 0), ignored=signal.SIGHUP) == (0, "undisturbed")


def test_signals_mean_afterwards_what_they_did_before() -> None:
    before = {number: signal.getsignal(number) for number in STOPPING}
    with StopSignals():
        assert {number: signal.getsignal(number) for number in STOPPING} != before
    assert {number: signal.getsignal(number) for number in STOPPING} == before


PARENT = """
import signal, subprocess, sys
from trainer.system.signals import stop_with_parent
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen(["sleep", "600"], preexec_fn=stop_with_parent).pid, flush=True)
"""


def test_a_child_ends_with_a_parent_that_ignores_the_signal_for_it() -> None:
    parent = subprocess.run([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    until(lambda: not is_running(int(parent.stdout)), 10)
