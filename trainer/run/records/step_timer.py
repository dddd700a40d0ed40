"""How long steps take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StepTimer:
    """Measures the last step: the `seconds` that it took, and how many of them it `waited` for its data. A
    step lasts from end to end: when the step returns, a GPU still updates the weights.
    """

    def __init__(self) -> None:
        self.seconds = self.waited = 0.0
        self._ended = time.perf_counter()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        asked = time.perf_counter()
        yield
        self.waited = time.perf_counter() - asked

    def after_step(self) -> None:
        started, self._ended = self._ended, time.perf_counter()
        self.seconds = self._ended - started

    def restart(self) -> None:
        """Leaves what was done since the last step, such as saving a checkpoint, out of the next one."""
        self._ended = time.perf_counter()
