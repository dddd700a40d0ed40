"""Python's garbage collection while a GPU trains."""

import gc

# As in torchtitan (GarbageCollection, gc_freq).
STEPS_BETWEEN = 50


class GarbageCollection:
    """Collects after every STEPS_BETWEEN-th step, so that all processes stop at the same step and none waits
    for another. What exists already is not searched again. Does nothing unless `wanted`.
    """

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted and gc.isenabled()
        if self._wanted:
            gc.collect()
            gc.freeze()
            gc.disable()

    def after_step(self, step: int) -> None:
        """`step` counts from 1."""
        if self._wanted and step % STEPS_BETWEEN == 0:
            gc.collect()

    def close(self) -> None:
        """Leaves collection to Python again."""
        if self._wanted:
            gc.unfreeze()
            gc.enable()
