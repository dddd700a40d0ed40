"""The process group and the device mesh: ranks, sizes, and sums over processes.

A single process has no group and pays nothing.
"""

import fcntl
import logging
import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.config import ParallelConfig
from trainer.parallel.dtensor import squares
from trainer.system.errors import (
    ProcessLostError,
    ToldByMainError,
    TrainerError,
    first_line,
    in_every_process,
)
from trainer.system.launch import RENDEZVOUS
from trainer.system.run_history import differing
from trainer.system.wording import counted

BUCKET_BYTES = 32 * 1024 * 1024
# Innermost dimension last: tensor parallelism communicates most, so its ranks share a node.
DIMENSIONS = ("dp_replicate", "dp_shard", "tp")
DATA = DIMENSIONS[:2]
STAGES = "pp"  # outermost: pipeline stages communicate least
SHOWN_CHARACTERS = 20  # of a hash or a list
SIOCGIFADDR = 0x8915  # linux/sockios.h
OF_GLOO = re.compile(r"^\[\S+/gloo/\S+\] ")  # its errors begin with the place in its code

Made = TypeVar("Made")

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class World:
    """One process's rank among `size`. Every method is a collective: all processes call it, in the same
    order.

    `mesh` has the DIMENSIONS and exists only if the model is split; else each process holds the full model
    and reads its own samples. `background` is a group for work that runs in parallel with training. With
    pipeline stages, `mesh` and `group` join the processes that hold the same stages, and `pipeline` those
    that together hold one copy of the model.
    """

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh | None = None
    pipeline: DeviceMesh | None = None
    background: dist.ProcessGroup | None = None
    group: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def data_size(self) -> int:
        """The number of processes that read different samples."""
        return self.size if self.mesh is None else self.mesh.size() // self.mesh["tp"].size()

    @property
    def data_rank(self) -> int:
        """This process's index among `data_size`. Ranks of one tensor-parallel group share it, and so do the
        stages of one pipeline.
        """
        return self.rank if self.mesh is None else self.rank % self.mesh.size() // self.mesh["tp"].size()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sums in place over the processes that read different samples."""
        if self.mesh is not None:
            for dimension in DATA:
                if self.mesh[dimension].size() > 1:
                    dist.all_reduce(values, group=self.mesh[dimension].get_group())
        elif self.size > 1:
            dist.all_reduce(values)
        return values

    def sum_all(self, values: torch.Tensor) -> torch.Tensor:
        """Sums in place over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def from_last_stage(self, values: torch.Tensor) -> torch.Tensor:
        """Replaces `values` in place by those of the last pipeline stage, if there are stages."""
        if self.pipeline is not None:
            dist.broadcast(values, group=self.pipeline.get_group(), group_src=self.pipeline.size() - 1)
        return values

    def any(self, flag: bool) -> bool:
        if self.size == 1:
            return flag
        return bool(self.sum_all(torch.tensor([float(flag)], device=self.device)).item())

    def least(self, value: int) -> int:
        """The smallest `value` of all processes."""
        if self.size == 1:
            return value
        least = torch.tensor([value], device=self.device)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        return int(least.item())

    def from_main(self, make: Callable[[], Made]) -> Made:
        """Calls `make` in the main process alone, and returns its result in every process. A TrainerError is
        raised in all of them.
        """
        if self.size == 1:
            return make()
        box: list[object] = [None, None]
        try:
            if self.is_main:
                box[0] = make()
        except TrainerError as error:
            box[1] = str(error)
            raise
        finally:
            dist.broadcast_object_list(box, src=0, device=self.device)
        if box[1] is not None:
            raise ToldByMainError(box[1])
        return cast(Made, box[0])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raises a TrainerError of any process in every process, so that none waits for it."""
        sentences: list[str] = [""] * self.size
        try:
            yield
        except TrainerError as error:
            if self.size == 1:
                raise
            sentences[self.rank] = str(error)
        if self.size > 1:
            dist.all_gather_object(sentences, sentences[self.rank])
        for told in filter(None, sentences):
            with in_every_process():
                raise TrainerError(told)

    def check_alike(self, own: Mapping[str, str]) -> None:
        """Raises TrainerError in every process if one has other settings or code than the main process."""
        of_main = self.from_main(lambda: own)
        with self.together():
            for name in differing([of_main, own])[:1]:
                here, there = (one.get(name, "none")[:SHOWN_CHARACTERS] for one in (own, of_main))
                raise TrainerError(
                    f"process {self.rank} on {socket.gethostname()} has {name} {here}, and the main process "
                    f"has {there}: give all processes the same configuration and the same code"
                )

    def norm(self, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        """The global L2 norm of `tensors` (weights or gradients), however they are split."""
        if self.mesh is None:
            return torch.nn.utils.get_total_norm(tensors)
        return self.sum_all(squares(tensors, self.mesh.size())).sqrt().float()

    @property
    def loss_factor(self) -> int:
        """The factor for each process's loss by which gradients become sums over processes. FSDP2 alone would
        average them.
        """
        return 1 if self.mesh is None else self.data_size

    def sum_gradients(self, model: nn.Module) -> None:
        """Replaces each gradient by its sum over all processes, in buckets in the order of the parameters.

        With FSDP2 the backward pass has done so.
        """
        if self.size == 1 or self.mesh is not None:
            return
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        for bucket in _take_tensors(gradients, BUCKET_BYTES):
            flat = self.sum(_flatten_dense_tensors(bucket))
            for gradient, summed in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
                gradient.copy_(summed)

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


def join(parallel: ParallelConfig, alike: Callable[[], Mapping[str, str]] = dict) -> World:
    """The world that torchrun's environment variables describe; without them, a single process.

    Raises TrainerError if `parallel` needs another number of processes, or if not all have the same `alike`.
    """
    rank, size, local_rank = _place()
    with in_every_process():
        parallel.check_processes(size)
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    _check_gpus(local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size == 1:
        return World(rank, size, device)
    try:
        _init_process_group(device, parallel.timeout_seconds)
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            raise  # torchrun starts the processes again
        why = f"{error} is not set" if isinstance(error, KeyError) else first_line(error)
        raise TrainerError(
            f"the environment has WORLD_SIZE={size}, but the processes do not meet at MASTER_ADDR and "
            f"MASTER_PORT ({why}). Start all of them with torchrun, within "
            "training.parallel.timeout_seconds, or unset WORLD_SIZE"
        ) from error
    World(rank, size, device).check_alike(alike())  # before they wait for each other in other orders
    if not parallel.splits_model:
        return World(rank, size, device, group=dist.group.WORLD)
    sizes = (parallel.pp, size // parallel.processes, parallel.dp_shard, parallel.tp)
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=(STAGES, *DIMENSIONS))
    pipeline = mesh[STAGES] if parallel.pp > 1 else None
    group = dist.group.WORLD if pipeline is None else dist.new_subgroups(size // parallel.pp)[0]
    return World(rank, size, device, mesh[DIMENSIONS], pipeline, dist.new_group(backend="gloo"), group)


def _check_gpus(local_rank: int) -> None:
    """Raises TrainerError if this machine has GPUs, but none for its process number `local_rank`. Each
    process tells it by itself, since the others may be on machines with more.
    """
    gpus = torch.cuda.device_count()
    if 0 < gpus <= local_rank:
        raise TrainerError(
            f"process {local_rank} of this machine has no GPU: PyTorch sees {counted(gpus, 'GPUs')} here, "
            f"and each process takes one of its own. Start at most {counted(gpus, 'processes')} on this "
            "machine (launch.nproc_per_node, torchrun --nproc-per-node), or set CUDA_VISIBLE_DEVICES to "
            "nothing to train on its CPUs"
        )


def _place() -> tuple[int, int, int]:
    """The rank, the number of processes and the rank on this machine. Raises TrainerError for variables that
    no torchrun has set.
    """
    variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    given = {name: os.environ.get(name, default) for name, default in variables.items()}
    with suppress(ValueError):
        rank, size, local_rank = map(int, given.values())
        if 0 <= rank < size and 0 <= local_rank < size:
            return rank, size, local_rank
    told = ", ".join(f"{name}={value}" for name, value in given.items())
    raise TrainerError(
        f"the environment has {told}, but ranks are whole numbers below the number of processes. Start "
        "several processes with torchrun, or unset these variables"
    )


def _init_process_group(device: torch.device, timeout_seconds: float) -> None:
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
            told = f"export {name}={value} before you start torchrun"
            log.warning(f"restarted processes will not find each other: {told}")
        return None
    port, size = int(environment["MASTER_PORT"]), int(environment["WORLD_SIZE"])
    store = dist.TCPStore(environment["MASTER_ADDR"], port, size, is_master=False)
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
                f"{host} is a loopback address on this machine, so processes on other machines cannot reach "
                "it: use its IP address instead of its name"
            )
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))[20:24]
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(found) == address:
                return name
    return None


@contextmanager
def naming_lost_processes() -> Iterator[None]:
    """Raises ProcessLostError if a collective fails, as it does when another process is gone."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or OF_GLOO.match(str(error))):
            raise
        why = OF_GLOO.sub("", first_line(error)).partition(". This is typically")[0]
        raise ProcessLostError(
            f"process {os.environ.get('RANK', '0')} on {socket.gethostname()} has lost another process of "
            f"this training ({why}): that one says why, or was killed, or hangs, or its machine is cut off. "
            "Run again to resume from the newest checkpoint; torchrun does so by itself while it has "
            "restarts left"
        ) from error


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
