"""Tasks on a real Ray cluster that hang, die or meet other code: each ends, and is said to, with its node."""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.engines.local import EngineParams, WorkerLostError
from tests.integration.project import ROOT, until

ray = pytest.importorskip("ray")

from ray.util.placement_group import placement_group  # noqa: E402

from pipeline.steps.training.ray_nodes import Training, _placed, check_shared, train  # noqa: E402
from pipeline.store.engines.ray import RayEngine  # noqa: E402
from pipeline.store.engines.ray_worker import ClusterError, Place, node_name  # noqa: E402
from tests.ray_cluster import RayCluster, started  # noqa: E402


def marked(mark: Path) -> str:
    """Slow the first time that it runs for a mark, fast the second time."""
    is_first = not mark.exists()
    with mark.open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(3 if is_first else 0.1)
    return mark.name


def node(_: int) -> str:
    time.sleep(0.2)
    return node_name()


def endless(number: int) -> int:
    print(f"part {number} waits", file=sys.stderr, flush=True)
    while number == 1:
        time.sleep(1)
    return number


def talks_and_dies(number: int) -> int:
    print(f"part {number} says this", file=sys.stderr, flush=True)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def talks_and_fails(number: int) -> int:
    print(f"part {number} says this", file=sys.stderr, flush=True)
    if number == 1:
        raise ValueError("part 1 is broken")
    return number


def greedy(number: int) -> int:
    time.sleep(20)
    return number


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("pipeline.store.engines.ray.LOOK_EVERY_SECONDS", 0.5)
    caplog.set_level(logging.INFO)


@pytest.fixture
def stops(tmp_path: Path) -> Iterator[Path]:
    """Where `marked` writes. The first process that works on the mark `2` is stopped."""
    stopped = []

    def stop() -> None:
        until(lambda: (tmp_path / "2").exists() and (tmp_path / "2").read_text().endswith("\n"), 60)
        stopped.append(int((tmp_path / "2").read_text()))
        os.kill(stopped[0], signal.SIGSTOP)

    thread = threading.Thread(target=stop)
    thread.start()
    yield tmp_path
    thread.join()
    until(lambda: not Path(f"/proc/{stopped[0]}").exists(), 20, lambda: "the stopped worker was left behind")


def test_a_second_copy_of_a_stopped_task_is_first_and_it_is_said_which_was_stuck(
    engine: RayEngine, stops: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.store.engines.ray.SLOW_SECONDS", 5)
    monkeypatch.setattr("pipeline.store.engines.ray.SLOWER", 1.5)
    begun = time.monotonic()
    marks = [stops / str(number) for number in range(4)]
    assert list(engine.map(marked, marks, input_bytes=1, what="signals")) == ["0", "1", "2", "3"]
    assert time.monotonic() - begun < 60
    slow = r"part 2 has run for \d+ s on node worker-\d, where \d+ s are usual: a second copy starts"
    assert re.search(f"signals: {slow}", caplog.text)
    assert re.search(r"signals: part 2 ended first on node worker-\d", caplog.text)
    # the stopped worker has given back its CPU
    assert len(set(engine.map(node, range(12), input_bytes=1, what="next"))) == 2


def test_a_stopped_task_that_cannot_be_compared_ends_with_its_time(
    engine: RayEngine, stops: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.store.engines.ray.LEAST_TASK_SECONDS", 8)
    monkeypatch.setattr("pipeline.store.engines.ray.WARN_EVERY_SECONDS", 2)
    assert list(engine.map(marked, [stops / "2", stops / "3"], input_bytes=1, what="signals")) == ["2", "3"]
    assert re.search(
        r"part 2 was lost on node worker-\d after \d+ s and runs again: it ran out of time", caplog.text
    )
    assert re.search(r"signals: \d of 2 parts; \d run, longest part 2: \d+ s on node worker-\d", caplog.text)


def test_a_task_that_always_hangs_fails_the_run_and_says_where_it_hung(
    engine: RayEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # a worker on a busy machine loads for longer than 5
    monkeypatch.setattr("pipeline.store.engines.ray.LEAST_TASK_SECONDS", 10)
    with pytest.raises(WorkerLostError, match=r"part 1 was lost 3 times.*raise engine\.task_seconds_per_mb"):
        list(engine.map(endless, range(4), input_bytes=1, what="signals"))
    assert "part 1 waits" in caplog.text
    assert re.search(r"test_ray_faults\.py.*in endless", caplog.text)


@pytest.mark.parametrize("threads", [0, 3])
def test_of_a_stack_that_a_late_task_wrote_the_run_is_told_the_place_where_it_hangs(
    tmp_path: Path, threads: int
) -> None:
    """It is at the beginning, however deep the stack."""
    log = tmp_path / "log"
    with log.open("w") as file:
        subprocess.run([sys.executable, "-c", HANGS, str(threads)], check=True, stderr=file)
    told = Place("worker-0", "id", os.getpid(), str(log), len("of an earlier task\n")).log_end().splitlines()
    assert told[:2] == ["part 1 waits", '  File "<string>", line 6 in hangs']
    assert sum(map(len, told)) < 3000


HANGS = """
import faulthandler, sys, threading, time
def hangs(depth):
    if depth:
        return hangs(depth - 1)
    time.sleep(1.5)
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("of an earlier task", "part 1 waits", sep="\\n", file=sys.stderr, flush=True)
faulthandler.dump_traceback_later(1, file=sys.stderr)
hangs(90)
"""


def test_what_a_worker_wrote_reaches_the_run_when_it_dies_or_fails(
    engine: RayEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(WorkerLostError):
        list(engine.map(talks_and_dies, range(3), input_bytes=1, what="signals"))
    assert re.search(r"the log of its worker ends:\npart 1 says this$", caplog.text, re.MULTILINE)
    with pytest.raises(ValueError, match="part 1 is broken") as raised:
        list(engine.map(talks_and_fails, range(3), input_bytes=1, what="signals"))
    assert "part 1 says this" in raised.value.__notes__[0]


@contextmanager
def asking(cluster: RayCluster, **settings: Any) -> Iterator[RayEngine]:
    """An engine with these settings."""
    params = EngineParams(kind="ray", address=cluster.address, task_memory=100_000_000, **settings)
    engine = RayEngine(params, processes_pay_above=0)
    try:
        yield engine
    finally:
        engine.close()


def test_tasks_run_where_the_labels_and_resources_are(cluster: RayCluster) -> None:
    cluster.add_node(labels={"pool": "cpu"}, resources={"disk": 1})
    cluster.wait_for(3)
    for asked in ({"labels": {"pool": "cpu"}}, {"resources": {"disk": 1}}):
        with asking(cluster, **asked) as engine:
            assert set(engine.map(node, range(4), input_bytes=1, what="test")) == {cluster.workers[-1][0]}


# Ray puts the run's own directory first on a worker's search path.
OTHER_CODE = """
import os, sys
from importlib.machinery import PathFinder

class OtherCode:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("pipeline", "trainer"):
            return PathFinder.find_spec(name, [os.path.dirname(__file__)])

sys.meta_path.insert(0, OtherCode)
"""


def test_a_node_with_a_changed_line_is_refused_by_node_and_file(cluster: RayCluster, tmp_path: Path) -> None:
    for package in ("pipeline", "trainer"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / "pipeline" / "steps" / "corpus" / "scrub.py"
    changed.write_text(changed.read_text() + "\nSCRUBS = False\n")
    (tmp_path / "sitecustomize.py").write_text(OTHER_CODE)
    cluster.add_node(labels={"code": "other"}, env_vars={"PYTHONPATH": str(tmp_path)})
    cluster.wait_for(len(cluster.workers))
    refused = r"node worker-\d has another pipeline/steps/corpus/scrub\.py than the machine of the run"
    with asking(cluster, labels={"code": "other"}) as engine, pytest.raises(ClusterError, match=refused):
        list(engine.map(node, range(4), input_bytes=1, what="test"))


def test_a_training_that_waits_for_nodes_says_whether_the_cluster_has_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline.steps.training.ray_nodes.WARN_EVERY_SECONDS", 1)

    def told(address: str, processes: int) -> str:
        stop = threading.Event()
        waiting = threading.Thread(target=_placed, args=(Training("", address, 1, processes, 1), stop))
        waiting.start()
        time.sleep(3.2)
        stop.set()
        waiting.join()
        said = capsys.readouterr().err
        assert said.count("waiting ") <= 3  # each second once
        return said

    with started(nodes=2) as own:  # which no other test has given more nodes
        ray.init(own.address, log_to_driver=False)
        in_use = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
        assert in_use.wait(60)
        too_large = "waiting for 1 node with 2 CPUs free; the cluster has 0 nodes of that size: start more"
        assert too_large in told(own.address, 2)
        all_in_use = "waiting for 1 node with 1 CPU free; the cluster has 2 nodes of that size\n"
        assert all_in_use in told(own.address, 1)
        ray.shutdown()


WITHOUT_CODE = """
import sys

class WithoutCode:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pipeline":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, WithoutCode)
"""


def test_a_node_without_this_package_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_CODE)
    refused = (
        r"^node [\d.]+ of the Ray .* \(ModuleNotFoundError: No module named 'pipeline'\): install the same"
    )
    with started(nodes=0) as cluster:
        cluster.add_node(env_vars={"PYTHONPATH": str(tmp_path)})
        cluster.wait_for(1)
        with asking(cluster) as engine, pytest.raises(ClusterError, match=refused):
            list(engine.map(node, range(4), input_bytes=1, what="test"))
        with pytest.raises(ClusterError, match=refused):
            check_shared(tmp_path, cluster.address)
        ray.shutdown()
        with pytest.raises(ClusterError, match=refused):
            train(Training("run.yaml", cluster.address, 1, 1, 1), threading.Event())
        ray.shutdown()


@pytest.mark.slow
def test_memory_that_runs_out_is_told_apart_from_a_node_that_is_gone() -> None:
    told = r"lost 3 times.*: memory ran out\. Raise engine\.task_memory"
    with (
        started(nodes=1, memory_usage_threshold=0.01) as cluster,
        asking(cluster) as engine,
        pytest.raises(WorkerLostError, match=told),
    ):
        list(engine.map(greedy, range(2), input_bytes=1, what="signals"))


@pytest.mark.slow
def test_the_tasks_of_a_stopped_node_run_again_on_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped: list[int] = []

    def stop() -> None:
        until(lambda: len(list(tmp_path.iterdir())) == 2, 60)
        stopped.extend(cluster.newest_pids())
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

    with started(health_check_timeout_ms=2000) as cluster, asking(cluster) as engine:
        thread = threading.Thread(target=stop)
        thread.start()
        marks = [tmp_path / str(number) for number in range(8)]
        assert list(engine.map(marked, marks, input_bytes=1, what="signals")) == [mark.name for mark in marks]
        thread.join()
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
    assert re.search(r"was lost on node worker-1 after \d+ s and runs again: the node is gone", caplog.text)
