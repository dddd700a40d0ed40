"""Work that threads do ahead of the caller."""

import time
from threading import Barrier

import pytest

from trainer.system.prefetch import in_threads


def test_results_come_in_the_order_of_the_items_from_all_threads_at_once() -> None:
    together = Barrier(3, timeout=20)

    def late(number: int) -> int:
        together.wait()
        time.sleep(0.01 * (3 - number % 3))
        return number * number

    assert list(in_threads(late, range(9), 3)) == [number * number for number in range(9)]


def test_items_are_taken_no_further_ahead_than_there_are_threads() -> None:
    taken: list[int] = []
    results = in_threads(abs, (taken.append(number) or number for number in range(100)), 2)
    assert [next(results) for _ in range(5)] == list(range(5))
    assert len(taken) <= 5 + 2


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda number: 1 // number, [2, 1, 0, 1], 2))
