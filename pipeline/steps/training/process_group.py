"""Runs child processes that never outlive the step. Their errors are shown and explain a failure."""

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO

from pipeline.store.errors import PipelineError
from trainer.system import terminal
from trainer.system.errors import USER_ERROR
from trainer.system.launch import STOP_SECONDS
from trainer.system.signals import handling, stop_with_parent

POLL_SECONDS = 0.2
# For the trainer to finish its step and save; longer than torchrun gives its processes.
GRACE_SECONDS = STOP_SECONDS + 20.0
KEPT_LINES = 300  # a stack trace of each of several processes, and torchrun's report on each
TORCHRUN = re.compile(r"[EIW]\d{4} .*torch/distributed/elastic/")  # the beginning of its log lines
STOPPED, TOLD = "death signal", re.compile("trainer: ")  # a trainer with a mistake ends torchrun
FAILED = re.compile(r"failed \(exitcode: (-?\d+)\)")


class RetriableError(PipelineError):
    """The trainer ended early through no mistake of the user: another attempt may succeed."""


class TrainerKilledError(RetriableError):
    """Something else ended the trainer."""


def run_group(
    command: Sequence[str],
    environment: Mapping[str, str],
    poll: Callable[[], bool],
    errors: IO[bytes] | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> int:
    """Runs `command` in a new session and returns its exit status. Calls `poll` repeatedly meanwhile and
    stops the command when it returns False.

    The command's standard error goes to `errors`, else to that of this process. However this ends (an
    exception, Ctrl-C, `poll`), the entire group is gone afterwards: `stop`, a grace period, SIGKILL. When
    this process dies, the command gets `stop`.

    Raises PipelineError when the system cannot run the command.
    """
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=partial(stop_with_parent, stop),
            stdin=subprocess.DEVNULL,
            stderr=errors,
        )
    except OSError as error:
        raise PipelineError(
            f"{command[0]!r} cannot be started: {error.strerror}. A script needs a first line such as "
            "`#!/bin/bash`, which names a program of this machine"
        ) from error
    try:
        while process.poll() is None:
            if not poll():
                break
            time.sleep(POLL_SECONDS)
    finally:
        with ignore_stop_signals():
            stop_group(process, stop)
            poll()
    return process.returncode


def stop_group(process: "subprocess.Popen[bytes]", stop: signal.Signals) -> None:
    """Sends the group `stop` and, after the grace period, SIGKILL."""
    if process.poll() is None:
        with terminal.doing("stopping the trainer, which saves its step first"):
            _signal_group(process.pid, stop)
            deadline = time.monotonic() + GRACE_SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return  # no process is left


@contextmanager
def ignore_stop_signals() -> Iterator[None]:
    """Ctrl-C reaches a step twice; the second must not interrupt the saving of the last checkpoint."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handling((signal.SIGINT, signal.SIGTERM), signal.SIG_IGN):
        yield


class ErrorOutput:
    """The child writes to `file`, no pipe: it can write, and save, after this process is gone."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115, it is closed with this
        self._shown = 0
        self._lines: deque[str] = deque([""], maxlen=KEPT_LINES)  # the last one is incomplete

    def close(self) -> None:
        self.file.close()

    def show(self) -> None:
        """Copies new output to the standard error of this process."""
        # pread, since the child shares the offset of the file.
        while data := os.pread(self.file.fileno(), 1 << 16, self._shown):
            self._shown += len(data)
            with suppress(OSError), open(2, "wb", closefd=False) as stderr:
                stderr.write(data)
            first, *others = data.decode(errors="replace").split("\n")
            self._lines[-1] += first
            self._lines.extend(others)

    def ended(self, status: int) -> tuple[int, list[str]]:
        """The exit status and the last lines of the trainer. Under torchrun: the status of the process that
        failed and the lines before torchrun's report on it.
        """
        lines = [line.rstrip() for line in self._lines if line.strip()]
        for at in reversed(range(len(lines))):
            if TORCHRUN.match(lines[at]) and (failed := FAILED.search(lines[at])):
                return int(failed[1]), [line for line in lines[:at] if not TORCHRUN.match(line)]
        for at, line in enumerate(lines):
            if TORCHRUN.match(line) and STOPPED in line and any(map(TOLD.match, lines[:at])):
                return USER_ERROR, [line for line in lines[:at] if not TORCHRUN.match(line)]
        return status, lines
