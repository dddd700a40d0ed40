"""`python -m pipeline.steps.training.ray_nodes JSON` trains on nodes of a Ray cluster: torchrun on each.

Ray places them and watches their nodes. They find each other through torchrun's rendezvous, and save to the
run's directory, which all nodes share.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import ray
from ray import exceptions
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from pipeline.store.engines.ray_cluster import connect
from pipeline.store.engines.ray_worker import ClusterError, naming_nodes_without_code, node_name
from pipeline.store.engines.same_code import Installed, refusal, source_files
from pipeline.store.errors import PipelineError
from trainer.system import launch
from trainer.system.errors import RESUMABLE, USER_ERROR
from trainer.system.signals import stop_with_parent
from trainer.system.wording import counted

POLL_SECONDS = 0.5
WARN_EVERY_SECONDS = 60.0
TOO_FEW = (
    ": start more with `ray start --address=...`, or stop the run and lower launch.nodes or "
    "launch.nproc_per_node"
)
SHOWN_BYTES = 1_000_000
PASSED_ON = "DAGSTER_PIPES"  # variables of the step; all others are those of the node


@dataclass(frozen=True)
class Training:
    """What to start, and where. `threads`: OpenMP threads of each process. None: its share of the cores."""

    config: str
    address: str
    nodes: int
    processes: int
    threads: int | None

    def command(self) -> list[str]:
        return [sys.executable, "-m", "pipeline.steps.training.ray_nodes", json.dumps(asdict(self))]


class Node:
    """An actor with one torchrun."""

    def __init__(self) -> None:
        # Not a pipe, so that trainers can write, and save, when this actor is gone.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, it ends with the actor
        self._shown = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def endpoint(self, run: Installed) -> tuple[str, str, str | None]:
        """The name of the node, an address on it for the rendezvous, and why it cannot take part."""
        with socket.socket() as free:
            free.bind(("", 0))
            address = f"{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"
        return node_name(), address, refusal(run, node_name())

    def train(self, training: Training, rank: int, endpoint: str, variables: Mapping[str, str]) -> int:
        """Runs torchrun and returns its exit status."""
        options = [
            *(f"--nnodes={training.nodes}", f"--nproc-per-node={training.processes}"),
            *(f"--max-restarts={launch.RESTARTS}", "--rdzv-backend=c10d", f"--rdzv-id={endpoint}"),
            *(f"--rdzv-endpoint={endpoint}", f"--rdzv-conf=is_host={int(rank == 0)}"),
            f"--local-addr={ray.util.get_node_ip_address()}",
        ]
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "trainer.system.torchrun", *options),
                *launch.trainer_arguments(Path(training.config)),
            ],
            env={**os.environ, **launch.environment(training.threads, training.processes), **variables},
            start_new_session=True,
            preexec_fn=stop_with_parent,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        self._process = process
        if self._stopped:
            process.terminate()
        return process.wait()

    def output(self) -> str:
        """What was written since the last call, up to SHOWN_BYTES."""
        data = os.pread(self._output.fileno(), SHOWN_BYTES, self._shown)
        self._shown += len(data)
        return data.decode(errors="replace")

    def stop(self) -> None:
        """Lets the trainers save a checkpoint and exit."""
        self._stopped = True
        if self._process is not None:
            self._process.terminate()


def check_shared(directory: Path, address: str) -> None:
    """Every node that has CPUs sees what is in a directory of this machine. Raises ClusterError."""
    connect(address, "launch.address")
    look, on = ray.remote(num_cpus=0)(_name_without), partial(NodeAffinitySchedulingStrategy, soft=True)
    with NamedTemporaryFile(dir=directory, prefix=".shared-") as file:
        nodes = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("CPU")]
        with naming_nodes_without_code():
            names = ray.get([look.options(scheduling_strategy=on(node)).remote(file.name) for node in nodes])
    ray.shutdown()
    if lacking := ", ".join(sorted(filter(None, names))):
        raise ClusterError(
            f"launch.kind ray: {lacking} of the cluster cannot see {directory}, where the trainer reads and "
            "saves: set GROUNDWORK_CACHE to a disk that all nodes share, or train here with another kind"
        )


def _name_without(path: str) -> str:
    """The name of this node if it lacks the file."""
    return "" if Path(path).exists() else node_name()


def train(training: Training, stop: threading.Event) -> int:
    """Trains until all nodes are done, and returns the exit status. When a node is lost the others are
    stopped, for another attempt from the newest checkpoint. Raises ClusterError.
    """
    connect(training.address, "launch.address")
    group = _placed(training, stop)
    if stop.is_set():
        return RESUMABLE
    chosen = placement_group_table(group)["bundles_to_node_id"].values()
    of_each = group.bundle_specs[0]
    actor = ray.remote(num_cpus=of_each["CPU"], num_gpus=of_each.get("GPU", 0), max_concurrency=3)(Node)
    nodes = [
        actor.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote()
        for index in range(training.nodes)
    ]
    try:
        with naming_nodes_without_code():
            found = ray.get([node.endpoint.remote(source_files()) for node in nodes])
        names, endpoints, refusals = zip(*found, strict=True)
        if refused := next(filter(None, refusals), None):
            raise ClusterError(refused)
        print(f"training on {', '.join(names)}", file=sys.stderr)
        variables = {name: text for name, text in os.environ.items() if name.startswith(PASSED_ON)}
        running = [
            node.train.remote(training, rank, endpoints[0], variables) for rank, node in enumerate(nodes)
        ]
        return _followed(nodes, names, running, stop)
    except exceptions.RayError as error:
        print(
            f"trainer: {_lost(chosen, error)} before training began: the logs of Ray on the node say why; if "
            "no other node is free, start one with `ray start --address=...`",
            file=sys.stderr,
        )
        return RESUMABLE


def _lost(chosen: Collection[str], error: exceptions.RayError) -> str:
    """Which of the chosen nodes are gone; if none is, what ended on one of them."""
    gone = [node["NodeName"] for node in ray.nodes() if not node["Alive"] and node["NodeID"] in chosen]
    if gone:
        return f"node {' and '.join(gone)} of the Ray cluster was lost"
    return f"a process on a node of the Ray cluster ended ({str(error).splitlines()[-1]})"


def _alive() -> list[dict[str, float]]:
    """The resources of each node that lives."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _placed(training: Training, stop: threading.Event) -> Any:
    """A placement group with a bundle on as many nodes, once there is room for it."""
    gpus = any(node.get("GPU") for node in _alive())
    bundle = {"CPU": training.processes} | ({"GPU": training.processes} if gpus else {})
    group = placement_group([bundle] * training.nodes, strategy="STRICT_SPREAD")
    waited = 0.0
    # Ray takes whole seconds, and 0.5 for none
    while not group.wait(0) and not stop.wait(POLL_SECONDS):
        waited += POLL_SECONDS
        if waited % WARN_EVERY_SECONDS == 0:
            wanted = " and ".join(counted(count, f"{name}s") for name, count in bundle.items())
            has = sum(all(node.get(name, 0) >= count for name, count in bundle.items()) for node in _alive())
            print(
                f"waiting for {counted(training.nodes, 'nodes')} with {wanted} free; the cluster has "
                f"{counted(has, 'nodes')} of that size{TOO_FEW if has < training.nodes else ''}",
                file=sys.stderr,
            )
    return group


def _followed(
    nodes: Sequence[Any], names: Sequence[str], running: Sequence[Any], stop: threading.Event
) -> int:
    """Shows what the nodes write until each has ended; stops all when one fails or is lost."""
    statuses: list[int | None] = [None] * len(nodes)
    stopped = False
    while None in statuses:
        ended, _ = ray.wait(list(running), num_returns=len(running), timeout=POLL_SECONDS)
        for rank, node in enumerate(nodes):
            if statuses[rank] is not None:
                continue
            try:
                sys.stderr.write(ray.get(node.output.remote()))
                if running[rank] in ended:
                    statuses[rank] = ray.get(running[rank])
                    sys.stderr.write(ray.get(node.output.remote()))
            except exceptions.RayError:
                print(f"trainer: node {names[rank]} was lost", file=sys.stderr)
                statuses[rank] = RESUMABLE
            sys.stderr.flush()
        if not stopped and (stop.is_set() or any(statuses)):
            stopped = True
            for rank, node in enumerate(nodes):
                if statuses[rank] is None:
                    node.stop.remote()
    failed = [status for status in statuses if status]
    return USER_ERROR if USER_ERROR in failed else next(iter(failed), 0)


def main() -> int:
    stop = threading.Event()
    training = Training(**json.loads(sys.argv[1]))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return train(training, stop)
    except PipelineError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return USER_ERROR


if __name__ == "__main__":
    # Not the functions of __main__, which Ray would send to the nodes by value.
    from pipeline.steps.training import ray_nodes

    sys.exit(ray_nodes.main())
