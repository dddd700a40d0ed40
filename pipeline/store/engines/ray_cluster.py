"""The Ray cluster: connects to it, and says which of its nodes have room for tasks."""

import logging
import os
import signal
import socket
from contextlib import suppress

import ray
from ray import exceptions

from pipeline.store.engines.local import EngineParams
from pipeline.store.engines.ray_worker import ClusterError
from pipeline.store.errors import first_line

CONNECT_SECONDS = 10.0


def connect(address: str, setting: str) -> None:
    """Connects this process to a cluster; `auto` takes RAY_ADDRESS, else the cluster of this machine. Raises
    ClusterError, which names the setting, or RAY_ADDRESS.
    """
    if address == "auto" and (of_environment := os.environ.get("RAY_ADDRESS")):
        address, setting = of_environment, "RAY_ADDRESS"
    _check_reachable(address, setting)
    # What listens there and is no head, such as its dashboard, Ray would try twenty times for 40 seconds.
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"the Ray cluster at {setting} {address!r} cannot be used: {first_line(error)}. Start one with "
            "`ray start --head` in the same environment, correct the address, set RAY_AUTH_MODE=token here "
            "too if the cluster has a token, or choose another `kind`"
        ) from error
    finally:
        with suppress(ValueError):  # this is not the main thread, and Ray has set nothing
            signal.signal(signal.SIGTERM, before)


def _check_reachable(address: str, setting: str) -> None:
    """Ray itself tries for minutes. Raises ClusterError."""
    host, _, port = address.rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise ClusterError(
            f"no Ray cluster answers at {setting} {address!r} ({why}): start its head node with `ray start "
            "--head`, or correct the address, which is a host and the port of the head, usually 6379"
        ) from error


def rooms(params: EngineParams) -> dict[str, int]:
    """How many tasks each node that lives and has the labels can run at a time, by its name."""
    wanted = {"CPU": 1, **params.resources, "memory": params.task_memory}
    return {
        node["NodeName"]: int(min(node["Resources"].get(name, 0) // much for name, much in wanted.items()))
        for node in ray.nodes()
        if node["Alive"] and params.labels.items() <= node["Labels"].items()
    }
