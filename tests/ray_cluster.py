"""A Ray cluster on this machine: a head without CPUs, and worker nodes with one CPU each."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.store.engines.local import EngineParams

if TYPE_CHECKING:
    from pipeline.store.engines.ray import RayEngine

OBJECT_STORE_BYTES = 80_000_000


@dataclass
class RayCluster:
    """Its nodes are called worker-0, worker-1, ..."""

    cluster: Any
    workers: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add_node(self, **settings: Any) -> None:
        name = f"worker-{len(self.workers)}"
        settings = {"num_cpus": 1, "node_name": name, "object_store_memory": OBJECT_STORE_BYTES, **settings}
        node = self.cluster.add_node(wait=False, **settings)
        self.workers.append((name, node))

    def wait_for(self, workers: int) -> None:
        """Until so many nodes besides the head have joined, for at most a minute. Raises TimeoutError."""
        for _ in range(600):
            alive = [node for node in self.cluster.global_state.node_table() if node["Alive"]]
            if len(alive) > workers:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{len(alive) - 1} of {workers} nodes have joined the head at {self.address}")

    def kill_node(self) -> str:
        """Kills the newest node with all of its processes, and returns its name."""
        for pid in self.newest_pids():
            os.kill(pid, signal.SIGKILL)
        return self.workers[-1][0]

    def newest_pids(self) -> list[int]:
        """The processes of the newest node."""
        raylet = self.workers[-1][1].all_processes["raylet"][0].process.pid
        found = subprocess.run(["pgrep", "-P", str(raylet)], capture_output=True, text=True, check=True)
        return [raylet, *map(int, found.stdout.split())]


def engine_on(address: str, task_memory: int = 100_000_000) -> "RayEngine":
    """An engine that gives all work to the cluster, however small."""
    from pipeline.store.engines.ray import RayEngine

    params = EngineParams(kind="ray", address=address, task_memory=task_memory)
    return RayEngine(params, processes_pay_above=0)


@contextmanager
def started(nodes: int = 2, **system: Any) -> Iterator[RayCluster]:
    from ray.cluster_utils import Cluster

    before = signal.getsignal(signal.SIGTERM)
    place = tempfile.mkdtemp(prefix="ray-")  # a socket's path has at most 107 characters
    # It notes its address there, whatever `temp_dir` is.
    Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray").mkdir(parents=True, exist_ok=True)
    settings = {
        "num_cpus": 0,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "temp_dir": place,
        "_system_config": {"health_check_period_ms": 1000, "health_check_failure_threshold": 3, **system},
    }
    cluster = RayCluster(Cluster(initialize_head=True, head_node_args=settings))
    try:
        for _ in range(nodes):
            cluster.add_node()
        cluster.cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.cluster.shutdown()
        signal.signal(signal.SIGTERM, before)
        shutil.rmtree(place, ignore_errors=True)
