"""Maps a function over parts on the nodes of a Ray cluster, with the same bytes as on this machine.

A task is given names of parts and returns names and counts. Text goes through the store, which all nodes see
under the same path.
"""

import atexit
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.store.engines import ray_worker
from pipeline.store.engines.local import PROCESSES_PAY_ABOVE, EngineParams, LocalEngine, Result, Task
from pipeline.store.engines.ray_cluster import connect, rooms
from pipeline.store.engines.ray_map import ClusterMap
from pipeline.store.engines.same_code import source_files
from trainer.system import terminal
from trainer.system.last_words import witness

log = logging.getLogger(__name__)

LAST_WORDS = (
    "the run was killed, by Ray if its head or the node of this machine is gone: start Ray again, and the "
    "run, which continues at the last whole part"
)


class RayEngine:
    """Tasks on a Ray cluster, from the first large work on. They end with this process in any case."""

    apart = True

    def __init__(self, params: EngineParams, processes_pay_above: int = PROCESSES_PAY_ABOVE):
        self.params = params
        self.processes_pay_above = processes_pay_above
        self._here = LocalEngine(1)  # for small work
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
            return self._here.map(function, tasks, input_bytes=input_bytes, what=what, own=own)
        return self._on_cluster(function, tasks, input_bytes, what, own)

    def _on_cluster(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        input_bytes: int,
        what: str,
        own: Sequence[str],
    ) -> Iterator[Result]:
        with terminal.doing("connecting to the Ray cluster"):
            self._connect()
        yield from ClusterMap(
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
        self._here.close()
        if self._connected:
            ray.shutdown()
            with self._witness as witness:
                witness.kill()
            self._connected = False
