"""Stop after the current step on SIGTERM, SIGINT, SIGHUP, SIGUSR1, or when the parent process dies."""

import ctypes
import gc
import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any

from trainer.system import ctrl_c, terminal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
# SIGUSR1 is for Slurm: srun passes it on, and answers the others by killing its tasks.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
# One Ctrl-C may arrive twice, from the terminal and from a parent process.
REPEATED_SECONDS = 1.0

log = logging.getLogger("trainer")


class StoppedEarlyError(KeyboardInterrupt):
    """A signal came before a step was taken since the run began or resumed: nothing is new."""


def heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Those of the signals that end this program. Under nohup SIGHUP does not: it outlives the terminal."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in numbers if not (ignored and number == signal.SIGHUP)]


@contextmanager
def handling(numbers: Iterable[signal.Signals], handler: Any) -> Iterator[None]:
    """Meanwhile these signals call `handler`."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class StopSignals(ExitStack):
    """While entered, the signals in STOPPING raise StoppedEarlyError until `after_step` is called; from
    then on they only set `received`. A second Ctrl-C ends the process at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received = False
        self._raises = True
        self._first = 0.0
        self.enter_context(handling(heeded(STOPPING), self._receive))

    def after_step(self) -> None:
        """Lets a signal wait for the end of the step from now on."""
        self._raises = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._raises:
            raise StoppedEarlyError
        now = time.monotonic()
        if not self.received:
            self._first = now
            log.warning(
                "%s: stopping after the current step, with a checkpoint. Ctrl-C again stops without one",
                signal.Signals(number).name,
            )
        elif number == signal.SIGINT and now - self._first > REPEATED_SECONDS:
            _end_at_once()
        self.received = True


def _end_at_once(*_: object) -> None:
    terminal.end()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def loading(what: str = "loading PyTorch") -> Iterator[None]:
    """Shows that modules are loaded. Meanwhile Ctrl-C ends the program: Python and some C modules drop a
    KeyboardInterrupt that is raised in an import, and print its stack trace. Nor is garbage collected: what
    is imported stays, and searching it took a seventh of the time.
    """
    collects = gc.isenabled()
    with terminal.doing(what), ctrl_c.calls(_end_at_once):
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def ending_at_once() -> AbstractContextManager[None]:
    """Meanwhile the signals in STOPPING end the process, which waits in a library that hears none of them."""
    return handling(heeded(STOPPING), signal.SIG_DFL)


def stop_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """The kernel sends `number` to this process when its parent dies. A trainer then saves and exits.

    A parent that ignores the signal, as Dagster ignores SIGTERM in the background of a script, does not pass
    that on.
    """
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
