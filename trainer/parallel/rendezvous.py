"""How the processes that torchrun starts find each other: the store that they meet in, the network that they
talk over.
"""

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
    """Joins the process group of torchrun's environment variables, NCCL between GPUs, gloo between CPUs. Who
    waits longer for another fails.
    """
    several_nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1
    if (
        several_nodes
        and "GLOO_SOCKET_IFNAME" not in os.environ
        and (interface := _interface_towards(os.environ["MASTER_ADDR"]))
    ):
        # Else gloo takes the interface that the machine's own name stands for, on many the loopback.
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
    """Where the processes leave their addresses; None: where `init_process_group` makes it.

    The store of torchrun's agent still has the addresses of those that ran before a restart, so a prefix
    keeps the restarts apart. Nodes do not agree how many restarts there were (pytorch issue 135712): several
    need a store of their own for each, which is `launch.RENDEZVOUS`.
    """
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    if several_nodes:
        if environment["RANK"] == "0" and environment["TORCHELASTIC_MAX_RESTARTS"] != "0":
            name, value = next(iter(RENDEZVOUS.items()))
            log.warning(
                "processes that are started again will not find each other: export %s=%s before torchrun",
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
    """The network interface with the IPv4 address that this machine has for `host`; None when no interface
    has it as its first.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 1))  # sends nothing
        address = probe.getsockname()[0]
        if address.startswith("127."):
            log.warning(
                "%s is a loopback address on this machine: processes on others cannot reach it; give its "
                "address instead of its name",
                host,
            )
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))[20:24]
            except OSError:
                continue  # it has none
            if socket.inet_ntoa(found) == address:
                return name
    return None
