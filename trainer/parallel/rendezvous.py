"""How the processes that torchrun starts find each other: their common store and network interface."""

import fcntl
import logging
import os
import socket
import struct
from collections.abc import Mapping
from datetime import timedelta

import torch
import torch.distributed as dist

from trainer.system.launch import RENDEZVOUS

SIOCGIFADDR = 0x8915  # linux/sockios.h

log = logging.getLogger("trainer")


def init_process_group(device: torch.device, timeout_seconds: float) -> None:
    """Joins the process group that torchrun's environment variables describe: NCCL for GPUs, gloo for CPUs.

    A collective that waits longer than `timeout_seconds` for another process fails.
    """
    several_nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1
    if (
        several_nodes
        and "GLOO_SOCKET_IFNAME" not in os.environ
        and (interface := _interface_towards(os.environ["MASTER_ADDR"]))
    ):
        # By default gloo takes the interface of the machine's own name, on many machines the loopback.
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=_store(os.environ, several_nodes),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=timeout_seconds),
        device_id=device if device.type == "cuda" else None,
    )


def _store(environment: Mapping[str, str], several_nodes: bool) -> dist.Store | None:
    """The store that holds the processes' addresses; None lets `init_process_group` create one.

    After a restart the store of torchrun's agent still holds the addresses of the processes before it, so a
    prefix keeps restarts apart. Nodes disagree about the number of restarts (pytorch issue 135712), so with
    several nodes each restart needs a new store: see `launch.RENDEZVOUS`.
    """
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    if several_nodes:
        if environment["RANK"] == "0" and environment["TORCHELASTIC_MAX_RESTARTS"] != "0":
            name, value = next(iter(RENDEZVOUS.items()))
            log.warning(
                "restarted processes will not find each other: export %s=%s before you start torchrun",
                name,
                value,
            )
        return None
    store = dist.TCPStore(
        environment["MASTER_ADDR"],
        int(environment["MASTER_PORT"]),
        int(environment["WORLD_SIZE"]),
        is_master=False,
    )
    return dist.PrefixStore(environment["TORCHELASTIC_RESTART_COUNT"], store)


def _interface_towards(host: str) -> str | None:
    """The network interface whose first IPv4 address this machine uses to reach `host`; None if there is
    none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 1))  # sends nothing
        address = probe.getsockname()[0]
        if address.startswith("127."):
            log.warning(
                "%s is a loopback address on this machine, so processes on other machines cannot reach it: "
                "use its IP address instead of its name",
                host,
            )
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))[20:24]
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(found) == address:
                return name
    return None
