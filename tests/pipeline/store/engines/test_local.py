"""One process or several: the same results in the same order."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest

from pipeline.plugins.loading import load
from pipeline.store.engines.local import LocalEngine, WorkerLostError
from tests.integration.project import until


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
    spread = set(engine.map(process_of, range(40), input_bytes=1000, what="test"))
    assert os.getpid() in spread
    assert len(spread) == 2
    # a third would start, and take the time of both, though nothing is ever given to it
    assert len(engine._pool._processes) == 1
    # the other process is there now, so small work goes to it too
    assert set(engine.map(process_of, range(4), input_bytes=999, what="test")) == spread
    # code of the user has as many processes, none of which is this one
    own = set(engine.map(process_of, range(40), input_bytes=999, what="test", own=["code"]))
    assert os.getpid() not in own
    assert len(own) == 2
    engine.close()


def has_run_its_program(_: int) -> bool:
    time.sleep(0.05)
    return sys.modules["__main__"].__name__ == "__mp_main__"


def test_workers_do_not_run_the_command_that_was_typed() -> None:
    command = Path(sys.executable).with_name("pytest")
    this = f"{__file__}::test_a_worker_has_not_run_its_program"
    subprocess.run([sys.executable, command, "-p", "no:cacheprovider", "-n", "0", this], check=True)


def test_a_worker_has_not_run_its_program() -> None:
    engine = LocalEngine(workers=2, processes_pay_above=0)
    assert not any(engine.map(has_run_its_program, range(8), input_bytes=1, what="test"))
    engine.close()


def has_pandas(_: int) -> bool:
    pa.array(["text"])
    time.sleep(0.05)
    return multiprocessing.parent_process() is not None and "pandas" in sys.modules


def nulls_of_columns(own_code: str) -> list[int]:
    return [pa.array(column).null_count for column in load(own_code)()]


def test_a_worker_imports_pandas_for_code_of_the_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a third of a worker's start. Without it, pyarrow takes what is missing for NaN."""
    code = """
        import pandas

        def columns():
            yield pandas.Series([1.0, float("nan")])
            yield pandas.Series(["text", None], dtype="object")
    """
    (tmp_path / "own_columns.py").write_text(dedent(code))
    monkeypatch.syspath_prepend(str(tmp_path))
    engine = LocalEngine(workers=2, processes_pay_above=0)
    assert set(engine.map(has_pandas, range(40), input_bytes=1, what="test")) == {False}
    found = engine.map(nulls_of_columns, ["own_columns:columns"], input_bytes=1, what="test", own=["own"])
    assert [*found] == [[1, 1]]
    engine.close()


@pytest.mark.parametrize("processes_pay_above", [0, 10**9])
def test_the_error_of_a_part_reaches_the_caller(processes_pay_above: int) -> None:
    engine = LocalEngine(workers=2, processes_pay_above=processes_pay_above)
    with pytest.raises(ValueError, match="part 3 is broken"):
        list(engine.map(failing, range(6), input_bytes=1, what="test"))
    engine.close()


def killed(run: int) -> int:
    time.sleep(0.05)
    if os.getpid() != run:
        os.kill(os.getpid(), signal.SIGKILL)
    return run


def test_a_worker_that_the_system_kills_is_said_so_and_the_next_work_gets_new_ones() -> None:
    engine = LocalEngine(workers=2, processes_pay_above=0)
    with pytest.raises(WorkerLostError, match=r"signals: a worker process was killed.*lower engine\.workers"):
        list(engine.map(killed, [os.getpid()] * 40, input_bytes=1, what="signals"))
    assert list(engine.map(squared_late, range(4), input_bytes=1, what="signals")) == [0, 1, 4, 9]
    engine.close()


def _note_process(directory: Path) -> None:
    (directory / str(os.getpid())).touch()
    time.sleep(60)


def _work_for_ever(directory: Path) -> None:
    list(
        LocalEngine(workers=2, processes_pay_above=0).map(
            _note_process, [directory] * 4, input_bytes=1, what="test"
        )
    )


def test_no_worker_outlives_a_killed_run(tmp_path: Path) -> None:
    run = multiprocessing.get_context("spawn").Process(target=_work_for_ever, args=(tmp_path,))
    run.start()
    until(lambda: len(list(tmp_path.iterdir())) == 2, 20)
    run.kill()
    run.join()
    until(lambda: not any(Path(f"/proc/{process.name}").exists() for process in tmp_path.iterdir()), 20)
