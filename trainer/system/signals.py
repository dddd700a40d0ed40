"""Stop after the current step on SIGTERM, SIGINT, or when the parent process dies."""

import ctypes
import logging
import signal
from types import FrameType, TracebackType
from typing import Any, Self

PR_SET_PDEATHSIG = 1  # linux/prctl.h

log = logging.getLogger("trainer")


class StopSignals:
    """While entered, SIGTERM and SIGINT only set `received`."""

    def __init__(self) -> None:
        self.received = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self.received:
            log.warning("%s: stopping after the current step, with a checkpoint", signal.Signals(number).name)
        self.received = True


def stop_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """The kernel sends `number` to this process when its parent dies. A trainer then saves and exits."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
