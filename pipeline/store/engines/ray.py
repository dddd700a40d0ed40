"""Maps a function over parts on the nodes of a Ray cluster, with the same bytes as on this machine.

A task is given names of parts and returns names and counts. Text goes through the store, which all nodes see
under the same path. A task that was lost with its node or worker runs again: it writes what it wrote before.
"""

import logging
import os
import pickle
import re
import signal
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import ray
from ray import exceptions

from pipeline.store.engines.local import (
    PROCESSES_PAY_ABOVE,
    EngineParams,
    Result,
    Task,
    TimeLeft,
    WorkerLostError,
)
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.manifest import tool_versions

log = logging.getLogger(__name__)

LOST = (
    exceptions.NodeDiedError,
    exceptions.LocalRayletDiedError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
    exceptions.WorkerCrashedError,
)
ATTEMPTS = 3  # of a task whose worker or node dies
AHEAD = 2  # tasks in flight for each that the cluster has room for
CONNECT_SECONDS = 10.0
WARN_EVERY_SECONDS = 60.0


class ClusterError(PipelineError):
    """The Ray cluster cannot be reached or is not set up for this work."""


class RayEngine:
    """Tasks on a Ray cluster, to which the first large work connects. They end with this process, however it
    ends.
    """

    apart = True

    def __init__(self, params: EngineParams, processes_pay_above: int = PROCESSES_PAY_ABOVE):
        self.params = params
        self.processes_pay_above = processes_pay_above
        self._connected = False

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, input_bytes: int, what: str
    ) -> Iterator[Result]:
        """As `LocalEngine.map`, on the cluster when the work is large enough.

        Raises ClusterError, and WorkerLostError when the same task was lost three times.
        """
        progress = TimeLeft(f"{what}: %d of %d parts")
        if len(tasks) < 2 or input_bytes < self.processes_pay_above:
            results: Iterator[Result] = map(function, tasks)
        else:
            results = self._on_cluster(function, tasks, what)
        for done, result in enumerate(results, 1):
            progress.reach(done, len(tasks))
            yield result

    def _on_cluster(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], what: str
    ) -> Iterator[Result]:
        self._connect()
        work = _Shared(tuple(sys.path), tool_versions(), pickle.dumps(function))
        shared = ray.put(pickle.dumps(work))
        remote = _run.options(memory=self.params.task_memory, name=what)
        waiting = list(range(len(tasks)))[::-1]
        running: dict[Future[_Outcome], tuple[int, ray.ObjectRef]] = {}
        finished: dict[int, Any] = {}
        losses: Counter[int] = Counter()
        try:
            for following in range(len(tasks)):
                while following not in finished:
                    limit = self._limit()
                    while waiting and len(running) < limit:
                        index = waiting.pop()
                        reference = remote.remote(shared, pickle.dumps(tasks[index]))
                        running[reference.future()] = index, reference
                    # ray.wait would hold back the signal that stops the run
                    done, _ = wait(running, WARN_EVERY_SECONDS, FIRST_COMPLETED)
                    for future in done:
                        index, _ = running.pop(future)
                        try:
                            finished[index] = future.result().result()
                        except LOST as error:
                            losses[index] += 1
                            part = str(getattr(tasks[index], "name", index))
                            _report(error, what, part, losses[index])
                            waiting.append(index)
                    if not done:
                        self._warn_of_lacking_nodes(what)
                yield finished.pop(following)
        finally:
            for _, reference in running.values():
                ray.cancel(reference, force=True)

    def _connect(self) -> None:
        if self._connected:
            return
        connect(self.params.address, "engine.address")
        self._connected = True
        room = _room(self.params.task_memory)
        log.info("Ray cluster with %d nodes and room for %d tasks", len(room), sum(room.values()))

    def _limit(self) -> int:
        """The most tasks in flight."""
        return self.params.workers or AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))

    def _warn_of_lacking_nodes(self, what: str) -> None:
        """Ray waits for ever for a node that a task fits on."""
        if not any(_room(self.params.task_memory).values()):
            log.warning(
                "%s: waiting, because no node of the Ray cluster has a CPU and %.1f GB of memory for a task: "
                "start nodes with `ray start --address=...`, or stop the run and lower engine.task_memory",
                what,
                self.params.task_memory / 1e9,
            )

    def close(self) -> None:
        """Leaves the cluster, which ends what is left of the tasks."""
        if self._connected:
            ray.shutdown()
            self._connected = False


def connect(address: str, setting: str) -> None:
    """Connects this process to a cluster; `auto` takes RAY_ADDRESS, else the cluster of this machine. Raises
    ClusterError, which names the setting.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    _check_reachable(address, setting)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"the Ray cluster at {setting} {address!r} cannot be used: {first_line(error)}. Start one with "
            "`ray start --head` in the same environment, or choose another `kind`"
        ) from error
    finally:
        with suppress(ValueError):  # this is not the main thread, and Ray has set nothing
            signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class _Shared:
    """What all tasks of a map have in common. `function` is pickled: only `path` makes it importable."""

    path: tuple[str, ...]
    tools: Mapping[str, str]
    function: bytes


@dataclass(frozen=True)
class _Outcome:
    """What a task returned or raised, and what it logged: logger, level and message."""

    node: str
    value: Any
    error: Exception | None
    logged: list[tuple[str, int, str]]

    def result(self) -> Any:
        for name, level, message in self.logged:
            logging.getLogger(name).log(level, "%s (on node %s)", message, self.node)
        if self.error is not None:
            raise self.error
        return self.value


@ray.remote(num_cpus=1, max_retries=0)
def _run(shared: bytes, task: bytes) -> _Outcome:
    heard = _Heard()
    logging.getLogger().addHandler(heard)
    node = node_name()
    value, failed = None, None
    try:
        value = _function(shared)(pickle.loads(task))
    except Exception as error:
        failed = error
        failed.add_note(f"On node {node}:\n{traceback.format_exc()}")
    finally:
        logging.getLogger().removeHandler(heard)
    return _Outcome(node, value, failed, heard.records)


@lru_cache(maxsize=1)
def _function(shared: bytes) -> Callable[[Any], Any]:
    work: _Shared = pickle.loads(shared)
    for name, version in tool_versions().items():
        if version != work.tools[name]:
            raise ClusterError(
                f"node {node_name()} has {name} {version}, and the machine of the run {work.tools[name]}: "
                "install the same environment on all of them"
            )
    sys.path += [path for path in work.path if path not in sys.path]
    # Each task has one core; encoders otherwise start a thread for each core of the node.
    os.environ["RAYON_NUM_THREADS"] = "1"
    found: Callable[[Any], Any] = pickle.loads(work.function)
    return found


class _Heard(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.name, record.levelno, record.getMessage()))


def _report(error: Exception, what: str, part: str, losses: int) -> None:
    """Logs that a task was lost, and with which node. Raises WorkerLostError when it was lost too often."""
    found = re.search(r"node ID: ([0-9a-f]+)", str(error), re.IGNORECASE)
    nodes = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    node = f" on node {nodes.get(found[1], found[1])}" if found else ""
    reason = {
        exceptions.OutOfMemoryError: "memory ran out",
        exceptions.WorkerCrashedError: "its worker process was killed, perhaps because memory ran out",
    }.get(type(error), "the node is gone")
    if losses >= ATTEMPTS:
        raise WorkerLostError(
            f"{what}: part {part} was lost {losses} times, at last{node}: {reason}. Raise engine.task_memory "
            "or lower raw.part_bytes, and run again"
        ) from error
    log.warning("%s: part %s was lost%s and runs again: %s", what, part, node, reason)


def _room(memory: int) -> dict[str, int]:
    """How many tasks each node that lives can run at a time."""
    resources = {node["NodeName"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    return {
        name: int(min(there.get("CPU", 0), there.get("memory", 0) // memory))
        for name, there in resources.items()
    }


@cache
def node_name() -> str:
    """The name of the node that this task runs on."""
    node = ray.get_runtime_context().get_node_id()
    return next((str(one["NodeName"]) for one in ray.nodes() if one["NodeID"] == node), node)


def _check_reachable(address: str, setting: str) -> None:
    """Ray itself tries for minutes. Raises ClusterError."""
    host, _, port = address.rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {setting} {address!r} ({error.strerror or error}): start its head "
            "node with `ray start --head`, or correct the address"
        ) from error
