"""One process or several: the same results in the same order."""

import os
import time

import pytest

from pipeline.engine import LocalEngine


def squared_late(number: int) -> int:
    time.sleep(0.02 * (number % 3))
    return number * number


def failing(number: int) -> int:
    if number == 3:
        raise ValueError("part 3 is broken")
    return number


def process_of(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def test_results_come_in_the_order_of_the_tasks() -> None:
    engine = LocalEngine(workers=2, processes_pay_above=0)
    expected = [squared_late(number) for number in range(20)]
    assert list(engine.map(squared_late, range(20), input_bytes=1, what="test")) == expected
    assert list(LocalEngine(workers=1).map(squared_late, range(20), input_bytes=1, what="test")) == expected
    engine.close()


def test_large_work_is_spread_over_processes_and_small_work_is_not() -> None:
    engine = LocalEngine(workers=2, processes_pay_above=1000)
    assert set(engine.map(process_of, range(4), input_bytes=999, what="test")) == {os.getpid()}
    spread = set(engine.map(process_of, range(8), input_bytes=1000, what="test"))
    assert os.getpid() not in spread
    assert len(spread) == 2
    engine.close()


@pytest.mark.parametrize("processes_pay_above", [0, 10**9])
def test_the_error_of_a_part_reaches_the_caller(processes_pay_above: int) -> None:
    engine = LocalEngine(workers=2, processes_pay_above=processes_pay_above)
    with pytest.raises(ValueError, match="part 3 is broken"):
        list(engine.map(failing, range(6), input_bytes=1, what="test"))
    engine.close()
