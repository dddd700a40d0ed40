"""Garbage is collected at fixed steps while a GPU trains, and by Python's own rules afterwards."""

import gc
import weakref

from trainer.run.garbage import STEPS_BETWEEN, GarbageCollection


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_a_cycle_lives_until_the_step_at_which_all_processes_collect() -> None:
    garbage = GarbageCollection(wanted=True)
    try:
        left = weakref.ref(Cycle())
        many: list[list[int]] = [[] for _ in range(5000)]  # Python would collect here
        garbage.after_step(STEPS_BETWEEN - 1)
        assert left() is not None and len(many) == 5000
        garbage.after_step(STEPS_BETWEEN)
        assert left() is None
    finally:
        garbage.close()
    assert gc.isenabled() and gc.get_freeze_count() == 0
    GarbageCollection(wanted=False)
    assert gc.isenabled()
