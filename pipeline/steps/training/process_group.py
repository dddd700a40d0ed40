"""Runs a child process group that never outlives the step that started it."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO

from pipeline.store.errors import PipelineError
from trainer.system.launch import STOP_SECONDS
from trainer.system.signals import stop_with_parent

POLL_SECONDS = 0.2
# For the trainer to finish its step and save; longer than torchrun gives its processes.
GRACE_SECONDS = STOP_SECONDS + 20.0


class RetriableError(PipelineError):
    """The trainer ended early through no mistake of the user: another attempt may succeed."""


class StartError(PipelineError):
    """The system cannot run the command."""


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

    Raises StartError when the system cannot run the command.
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
        raise StartError(
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
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
