"""Maps a function over parts on the nodes of a Ray cluster, with the same bytes as on this machine.

A task is given names of parts and returns names and counts. Text goes through the store, which all nodes see
under the same path. A task that was lost with its node or worker runs again: it writes what it wrote before.
Two copies of one may run at a time: each file has a name of its own until it is whole.
"""

import atexit
import logging
import pickle
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic

import ray
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.store.engines import ray_worker
from pipeline.store.engines.local import (
    PROCESSES_PAY_ABOVE,
    EngineParams,
    LocalEngine,
    Result,
    Task,
    TimeLeft,
    WorkerLostError,
)
from pipeline.store.engines.ray_cluster import connect, rooms
from pipeline.store.engines.ray_worker import (
    END_WITHIN_SECONDS,
    Outcome,
    Place,
    answer,
    naming_nodes_without_code,
)
from pipeline.store.engines.same_code import libraries, source_files
from trainer.system import terminal
from trainer.system.last_words import witness

log = logging.getLogger(__name__)

ATTEMPTS = 3  # of a task that is late or whose worker dies
NODES = 10  # that a task may lose: nodes come and go, but one that takes down each of them has to end
MORE_MEMORY = "Raise engine.task_memory or lower raw.part_bytes"
MORE_TIME = "Find out what it waits for there, or raise engine.task_seconds_per_mb"
KILLED = "its worker process was killed, perhaps because memory ran out"
# Why a task ended without a result, how often it may, and what to do then.
CAUSES: Mapping[type[BaseException], tuple[str, int, str]] = {
    exceptions.OutOfMemoryError: ("memory ran out", ATTEMPTS, MORE_MEMORY),
    exceptions.WorkerCrashedError: (KILLED, ATTEMPTS, MORE_MEMORY),
    TimeoutError: ("it ran out of time", ATTEMPTS, MORE_TIME),
}
NODE_LOST = (exceptions.NodeDiedError, exceptions.LocalRayletDiedError, exceptions.ObjectLostError)
OF_NODES = ("the node is gone", NODES, "Find out whether the part takes its nodes down")
NODE_ID = "ray.io/node-id"
AHEAD = 2  # tasks in flight for each that the cluster has room for
LEAST_TASK_SECONDS = 600.0  # that a task may take, however little it reads
LOOK_EVERY_SECONDS = 5.0
WARN_EVERY_SECONDS = 60.0
# A second copy starts when nothing else waits and the first has run for so long, and so many times the usual.
SLOW_SECONDS, SLOWER = 30.0, 3.0

LAST_WORDS = (
    "the run was killed, by Ray if its head or the node of this machine is gone: start Ray again, and the "
    "run, which continues at the last whole part"
)

_numbers = count()


class RayEngine(LocalEngine):
    """Tasks on a Ray cluster, from the first large work on; small work is done in this process. The tasks end
    with this process in any case.
    """

    apart = True

    def __init__(self, params: EngineParams, processes_pay_above: int = PROCESSES_PAY_ABOVE):
        super().__init__(1, processes_pay_above)
        self.params = params
        self._connected = False
        self._begun: Any = None
        source_files()  # that this process has loaded, before they may change

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        input_bytes: int,
        what: str,
        own: Sequence[str] = (),
    ) -> Iterator[Result]:
        """As `LocalEngine.map`, on the cluster when the work is large enough.

        Raises ClusterError, and WorkerLostError when the same task was lost three times.
        """
        if len(tasks) < 2 or input_bytes < self.processes_pay_above:
            yield from super().map(function, tasks, input_bytes=input_bytes, what=what, own=own)
            return
        with terminal.doing("connecting to the Ray cluster"):
            self._connect()
        yield from _ClusterMap(
            self.params, function, tasks, input_bytes=input_bytes, what=what, own=own, begun=self._begun
        ).results()

    def _connect(self) -> None:
        if self._connected:
            return
        connect(self.params.address, "engine.address")
        self._connected = True
        # Ray ends this process without a word; the pipe then closes. So it does if anything else kills it.
        self._witness = witness(LAST_WORDS)
        atexit.register(self._witness.kill)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        begun = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(ray_worker.TaskStarts)
        self._begun = begun.remote()
        room = rooms(self.params)
        log.info("Ray cluster with %d nodes and room for %d tasks", len(room), sum(room.values()))

    def close(self) -> None:
        """Leaves the cluster, which ends what is left of the tasks."""
        super().close()
        if self._connected:
            ray.shutdown()
            with self._witness as witness:
                witness.kill()
            self._connected = False


@dataclass(eq=False)
class _Copy:
    """A task in flight. `number` is unique, `index` is that of the task. `place` and `seconds`: where and for
    how long it ran when it was last looked for; None while it waits for room.
    """

    number: int
    index: int
    future: "Future[Outcome]"
    reference: ray.ObjectRef
    place: Place | None = None
    seconds: float = 0.0


class _ClusterMap(Generic[Task, Result]):
    """The tasks of one call of `map`. `own` names the user's code that they call; `begun` is the actor that
    knows where tasks run.
    """

    def __init__(
        self,
        params: EngineParams,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        input_bytes: int,
        what: str,
        own: Sequence[str],
        begun: Any,
    ):
        self._params, self._tasks, self._what, self._begun = params, tasks, what, begun
        self._own = " and ".join(own)
        sizes = [max(1, getattr(task, "bytes", 1)) for task in tasks]
        self._shares = [size / sum(sizes) for size in sizes]
        seconds = params.task_seconds_per_mb * input_bytes / 1e6
        self._limits = [LEAST_TASK_SECONDS + seconds * share for share in self._shares]
        installed = {**libraries(), **source_files()}
        shared = ray_worker.Shared(tuple(sys.path), installed, pickle.dumps(function))
        self._shared = ray.put(pickle.dumps(shared))
        self._options = _options(params, what)
        # Where each task is: by its index, or as copies by their futures.
        self._waiting = list(range(len(tasks)))[::-1]
        self._running: dict[Future[Outcome], _Copy] = {}
        self._ending: list[Future[Outcome]] = []
        self._finished: dict[int, Result] = {}
        self._losses: Counter[tuple[int, str]] = Counter()
        # Of tasks that ended: seconds by the share of the bytes.
        self._rates: deque[float] = deque(maxlen=1000)
        self._gone: set[str] = set()  # nodes
        self._elsewhere: dict[str, str] = {}
        self._limit, self._looked, self._heard = 0, 0.0, time.monotonic()

    def results(self) -> Iterator[Result]:
        """The results in the order of the tasks. Raises the first error of a task unchanged, and
        WorkerLostError for a task that was lost too often.
        """
        try:
            with TimeLeft(f"{self._what}: %d of %d parts") as progress:
                for following in range(len(self._tasks)):
                    while following not in self._finished:
                        self._look(progress)
                        while self._waiting and len(self._running) < self._limit:
                            self._submit(self._waiting.pop(), self._elsewhere)
                        # ray.wait would hold back the signal that stops the run
                        for future in wait(self._running, LOOK_EVERY_SECONDS, FIRST_COMPLETED).done:
                            if future in self._running:
                                self._take(self._running.pop(future))
                    yield self._finished.pop(following)
                # What still writes would write beside what is published then.
                wait(self._ending, END_WITHIN_SECONDS)
        finally:
            for copy in self._running.values():
                ray.cancel(copy.reference, force=True)

    def _submit(self, index: int, elsewhere: dict[str, str]) -> None:
        """Puts a copy of a task in flight, on nodes with the labels `elsewhere` if there are any."""
        number, options, labels = next(_numbers), self._options, self._params.labels
        if elsewhere:
            anywhere = [{"label_selector": labels}]
            options = options | {"label_selector": labels | elsewhere, "fallback_strategy": anywhere}
        remote = ray_worker.run.options(**options)
        task = pickle.dumps(self._tasks[index])
        reference = remote.remote(self._shared, task, number, self._begun, self._limits[index])
        copy = _Copy(number, index, reference.future(), reference)
        self._running[copy.future] = copy

    def _take(self, copy: _Copy) -> None:
        self._heard = time.monotonic()
        try:
            with naming_nodes_without_code():
                outcome = copy.future.result()
        except (*NODE_LOST, *CAUSES) as error:
            self._locate(copy)
            self._run_again(copy, type(error))
            return
        self._finished[copy.index] = outcome.result()
        self._rates.append(outcome.seconds / self._shares[copy.index])
        for other in self._copies(copy.index):
            log.warning("%s ended first on node %s", self._part(copy.index), outcome.node)
            self._end(other)

    def _look(self, progress: TimeLeft) -> None:
        """Every few seconds: which tasks run where, and for how long."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_SECONDS:
            return
        self._looked = now
        self._limit = self._params.workers or AHEAD * max(1, sum(rooms(self._params).values()))
        self._locate()
        gone = {node["NodeID"] for node in ray.nodes() if not node["Alive"]}
        lost = gone - self._gone if self._running else set()
        self._gone = gone
        if lost:
            self._elsewhere = {NODE_ID: f"!{min(lost)}"}
        for copy in list(self._running.values()):
            self._check(copy, bool(lost))
        done = len(self._tasks) - len(self._waiting) - len({copy.index for copy in self._running.values()})
        progress.reach(done, len(self._tasks), self._longest())
        if now - self._heard > WARN_EVERY_SECONDS:
            self._heard = now
            self._warn(done)

    def _check(self, copy: _Copy, node_was_lost: bool) -> None:
        """Starts a copy once more that is on a lost node, or late; or a second one beside a slow one."""
        if copy.place and copy.place.node_id in self._gone:
            del self._running[copy.future]
            self._run_again(copy, exceptions.NodeDiedError)
        elif node_was_lost and not copy.place:
            # A node that falls silent may hold tasks that have not begun. Ray waits minutes for its answer,
            # and asks for no other room for tasks like them: so those that follow are of another kind.
            del self._running[copy.future]
            ray.cancel(copy.reference, force=True)
            if not self._copies(copy.index):
                self._waiting.append(copy.index)
        elif copy.seconds > self._limits[copy.index]:
            self._run_again(copy, TimeoutError)
        elif copy.place:
            self._copy_slow(copy, copy.place)

    def _copy_slow(self, copy: _Copy, place: Place) -> None:
        """Starts a second copy of a task that takes longer than others, if nothing else waits for room."""
        if not self._rates or self._waiting or len(self._running) >= self._limit:
            return
        usual = statistics.median(self._rates) * self._shares[copy.index]
        if copy.seconds > max(SLOW_SECONDS, SLOWER * usual) and len(self._copies(copy.index)) == 1:
            log.warning(
                "%s has run for %.0f s on node %s, where %.0f s are usual: a second copy starts",
                *(self._part(copy.index), copy.seconds, place.node, usual),
            )
            self._submit(copy.index, {NODE_ID: f"!{place.node_id}"})

    def _run_again(self, copy: _Copy, cause: type[BaseException]) -> None:
        """Lets a lost task run again, unless another copy does. Raises WorkerLostError when it was lost too
        often.
        """
        reason, most, advice = CAUSES.get(cause, OF_NODES)
        if self._own and cause is exceptions.WorkerCrashedError:
            reason, advice = f"{self._own} ended its process, or {KILLED}", f"Correct the code. {MORE_MEMORY}"
        part, log_end = self._part(copy.index), self._end(copy) if cause in CAUSES else ""
        if log_end:
            log.warning("%s: the log of its worker ends:\n%s", part, log_end)
        where = f" on node {copy.place.node} after {copy.seconds:.0f} s" if copy.place else ""
        self._losses[copy.index, advice] += 1
        if (times := self._losses[copy.index, advice]) >= most:
            lost = f"{part} was lost {times} times, at last{where}: {reason}"
            raise WorkerLostError(f"{lost}. {advice}, and run again")
        log.warning("%s was lost%s and runs again: %s", part, where, reason)
        if not self._copies(copy.index):
            self._waiting.append(copy.index)

    def _end(self, copy: _Copy) -> str:
        """Ends a copy, also where its process is stopped, and returns the end of its log."""
        if self._running.pop(copy.future, None):
            ray.cancel(copy.reference, force=True)
            self._ending.append(copy.future)
        if not copy.place:
            return ""
        there = NodeAffinitySchedulingStrategy(copy.place.node_id, soft=False)
        return answer(ray_worker.end.options(scheduling_strategy=there).remote(copy.place)) or ""

    def _locate(self, *ended: _Copy) -> None:
        """Finds out where copies run or ran, and for how many seconds. Without an answer that stays."""
        copies = [*ended, *self._running.values()]
        numbers = [copy.number for copy in copies]
        places = (answer(self._begun.among.remote(numbers)) if numbers else None) or {}
        for copy in copies:
            copy.place, copy.seconds = places.get(copy.number, (copy.place, copy.seconds))

    def _copies(self, index: int) -> list[_Copy]:
        return [copy for copy in self._running.values() if copy.index == index]

    def _name(self, index: int) -> object:
        return getattr(self._tasks[index], "name", index)

    def _part(self, index: int) -> str:
        return f"{self._what}: part {self._name(index)}"

    def _longest(self) -> str:
        """The end of a log line: how many copies run, and which part has run for longest, where."""
        begun = [(copy.seconds, copy.index, copy.place.node) for copy in self._running.values() if copy.place]
        if not begun:
            return ""
        seconds, index, node = max(begun)
        return f"; {len(begun)} run, longest part {self._name(index)}: {seconds:.0f} s on node {node}"

    def _warn(self, done: int) -> None:
        """Nothing has ended for a while. Ray waits for ever for a node that a task fits on."""
        if any(rooms(self._params).values()):
            log.info("%s: %d of %d parts%s", self._what, done, len(self._tasks), self._longest())
            return
        asked = {"CPU": 1, **self._params.resources, "memory": f"{self._params.task_memory / 1e9} GB"}
        wanted = ", ".join(f"{name} {much}" for name, much in (asked | self._params.labels).items())
        log.warning(
            "%s: waiting, because no node of the Ray cluster has room for a task (%s): start nodes with "
            "`ray start --address=...`, or stop the run and lower what tasks ask for in `engine`",
            *(self._what, wanted),
        )


def _options(params: EngineParams, what: str) -> dict[str, Any]:
    """What each task asks Ray for."""
    resources = {"CPU": 1, "GPU": 0, **params.resources}
    return {
        "num_cpus": resources.pop("CPU"),
        "num_gpus": resources.pop("GPU"),
        "memory": params.task_memory,
        "resources": resources,
        "name": what,
        "label_selector": params.labels,
    }
