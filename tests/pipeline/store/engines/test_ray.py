"""A real Ray cluster of three nodes on this machine, the first without CPUs."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.engines.same_code import libraries
from pipeline.store.errors import PipelineError

ray = pytest.importorskip("ray")

from pipeline.store.engines.ray import CAUSES, RayEngine  # noqa: E402
from pipeline.store.engines.ray_worker import ClusterError  # noqa: E402
from tests.integration.project import until  # noqa: E402
from tests.ray_cluster import RayCluster, engine_on  # noqa: E402


def squared_late(number: int) -> tuple[int, str]:
    time.sleep(0.05 * (number % 3))
    return number * number, ray.get_runtime_context().get_node_id()


class PartError(PipelineError):
    pass


def failing(number: int) -> int:
    if number == 3:
        raise PartError("part 3 is broken: mend it")
    logging.getLogger("pipeline.example").warning("part %d is odd", number)
    return number


def slow(marks: Path) -> str:
    (marks / str(os.getpid())).touch()
    time.sleep(5)
    return "done"


def endless(marks: Path) -> None:
    (marks / str(os.getpid())).touch()
    time.sleep(600)


def killed(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_from_several_nodes(engine: RayEngine) -> None:
    results = list(engine.map(squared_late, range(12), input_bytes=1, what="test"))
    assert [square for square, _ in results] == [number * number for number in range(12)]
    assert len({node for _, node in results}) == 2


def test_the_first_error_and_the_warnings_of_a_task_reach_the_run(
    engine: RayEngine, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(PartError) as raised:
        list(engine.map(failing, range(6), input_bytes=1, what="test"))
    assert str(raised.value) == "part 3 is broken: mend it"
    assert "On node worker-" in raised.value.__notes__[0]
    # Two tasks run at a time, so that two of the parts before the broken one have ended.
    assert len(re.findall(r"part [012] is odd \(on node worker-", caplog.text)) >= 2
    assert signal.getsignal(signal.SIGTERM) == before  # with which Dagster stops the run


def test_a_task_that_kills_its_worker_is_said_so_and_the_next_work_goes_on(
    engine: RayEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(PipelineError, match=r"signals: part 1 was lost 3 times.*engine\.task_memory"):
        list(engine.map(killed, range(4), input_bytes=1, what="signals"))
    lost = r"part 1 was lost on node worker-\d after \d+ s and runs again: its worker process was killed"
    assert len(re.findall(lost, caplog.text)) == 2
    assert len(list(engine.map(squared_late, range(4), input_bytes=1, what="signals"))) == 4


def test_code_of_the_users_that_ends_its_worker_is_named(engine: RayEngine) -> None:
    named = (
        r"^signals: part 1 was lost 3 times, at last on node worker-\d .*: mine:louder ended its process, or "
    )
    with pytest.raises(PipelineError, match=rf"{named}.*Correct the code\. Raise engine\.task_memory"):
        list(engine.map(killed, range(4), input_bytes=1, what="signals", own=["mine:louder"]))


def test_stopping_ends_the_tasks_and_a_run_that_was_killed_leaves_none(
    cluster: RayCluster, engine: RayEngine, tmp_path: Path
) -> None:
    stopped, killed = tmp_path / "stopped", tmp_path / "killed"
    stopped.mkdir()
    killed.mkdir()
    with interrupted_when(lambda: len(pids(stopped)) == 2):
        next(engine.map(endless, [stopped] * 3, input_bytes=1, what="test"))
    until(lambda: not any(map(alive, pids(stopped))), 60)
    run = subprocess.Popen([sys.executable, "-c", ENDLESS, cluster.address, str(killed)])
    until(lambda: len(pids(killed)) == 2, 60)
    run.kill()
    run.wait()
    until(lambda: not any(map(alive, pids(killed))), 60)


ENDLESS = """
import sys
from pathlib import Path
from tests.pipeline.store.engines.test_ray import endless
from tests.ray_cluster import engine_on
list(engine_on(sys.argv[1]).map(endless, [Path(sys.argv[2])] * 3, input_bytes=1, what="test"))
"""


@contextmanager
def interrupted_when(reached: Callable[[], bool]) -> Iterator[None]:
    """What runs inside is stopped as Dagster stops a run: by an exception from a signal's handler."""

    def interrupt(number: int, frame: object) -> None:
        raise InterruptedError

    def watch() -> None:
        until(reached, 60)
        os.kill(os.getpid(), signal.SIGALRM)

    signal.signal(signal.SIGALRM, interrupt)
    watcher = threading.Thread(target=watch)
    watcher.start()
    with pytest.raises(InterruptedError):
        yield
    watcher.join()


def test_a_run_that_waits_for_nodes_says_so(
    cluster: RayCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.store.engines.ray.WARN_EVERY_SECONDS", 1)
    engine = engine_on(cluster.address, task_memory=10**13)
    with interrupted_when(lambda: "waiting, because" in caplog.text):
        list(engine.map(squared_late, range(4), input_bytes=1, what="signals"))
    engine.close()
    assert (
        "signals: waiting, because no node of the Ray cluster has room for a task (CPU 1, memory 10000.0 GB)"
        in caplog.text
    )


def test_a_cluster_with_other_versions_is_refused(engine: RayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {**libraries(), "numpy": ("0.1", "")}
    monkeypatch.setattr("pipeline.store.engines.ray.libraries", lambda: versions)
    with pytest.raises(ClusterError, match=r"node worker-\d has another numpy than the .*instead of 0\.1"):
        list(engine.map(squared_late, range(4), input_bytes=1, what="test"))


def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1.*start its head node with `ray start --head`"):
        list(engine_on("127.0.0.1:1").map(squared_late, range(4), input_bytes=1, what="test"))


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265/", "10.0.0.1:port"])
def test_a_ray_address_that_is_none_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ClusterError, match=re.escape(f"no Ray cluster answers at RAY_ADDRESS '{address}' (")):
        list(engine_on("auto").map(squared_late, range(4), input_bytes=1, what="test"))


@pytest.mark.slow
def test_a_port_on_which_something_else_listens_is_one_sentence(webhook: tuple[str, list[Any]]) -> None:
    address = webhook[0].removeprefix("http://")
    with pytest.raises(
        ClusterError, match=rf"cluster at engine\.address '{address}' cannot be used: .*correct"
    ):
        list(engine_on(address).map(squared_late, range(4), input_bytes=1, what="test"))


def test_the_tasks_of_a_lost_node_run_again_and_the_node_is_named(
    cluster: RayCluster,
    engine: RayEngine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = {cause: (reason, 1, advice) for cause, (reason, _, advice) in CAUSES.items()}
    # A worker may not be lost at all, a node may.
    monkeypatch.setattr("pipeline.store.engines.ray.CAUSES", once)
    results = engine.map(slow, [tmp_path] * 4, input_bytes=1, what="scrubbed")
    lost: list[str] = []

    def kill() -> None:
        until(lambda: len(pids(tmp_path)) == 2, 60)
        lost.append(cluster.kill_node())

    thread = threading.Thread(target=kill)
    thread.start()
    assert list(results) == ["done"] * 4
    thread.join()
    assert re.search(rf"on node {lost[0]} after \d+ s and runs again: the node is gone", caplog.text)


def pids(marks: Path) -> list[int]:
    return [int(mark.name) for mark in marks.iterdir()]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
