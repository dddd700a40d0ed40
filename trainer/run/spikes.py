"""Detects loss spikes by the rule of OLMo-core's SkipStepOptimizer; training.spikes says what to do."""

from collections import deque
from collections.abc import Iterable

import numpy as np

STEPS = 128
SIGMAS = 6.0


class SpikeDetector:
    """Holds loss and gradient norm of the last STEPS steps; a resumed run starts from `history`."""

    def __init__(self, history: Iterable[tuple[float, float]] = ()) -> None:
        self._history: deque[tuple[float, float]] = deque(history, maxlen=STEPS)

    @property
    def history(self) -> list[tuple[float, float]]:
        return list(self._history)

    def is_spike(self, loss: float, grad_norm: float) -> bool:
        """Whether the loss or the norm is more than SIGMAS standard deviations above its mean over the last
        STEPS steps; never in the first STEPS steps.

        A spike counts in the following means and deviations, so that a lasting change soon stops being one.
        """
        spike = False
        if len(self._history) == STEPS:
            before = np.array(self._history)
            spike = bool(
                np.any(np.array([loss, grad_norm]) > before.mean(axis=0) + SIGMAS * before.std(axis=0))
            )
        self._history.append((loss, grad_norm))
        return spike
