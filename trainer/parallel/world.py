"""The process group and the device mesh: who is who, and sums over all. A single process needs no group and
pays nothing.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.config import ParallelConfig
from trainer.parallel.dtensor import squares
from trainer.parallel.rendezvous import init_process_group
from trainer.system.errors import TrainerError

BUCKET_ELEMENTS = 8 * 1024 * 1024
# The last varies fastest: neighbours, which share a machine, have the most to tell each other.
DIMENSIONS = ("dp_replicate", "dp_shard", "tp")
DATA = DIMENSIONS[:2]
STAGES = "pp"  # comes before them: stages have the least to tell each other


@dataclass(frozen=True)
class World:
    """One process's place among `size`. Every method is a collective: all processes call it, in the same
    order.

    `mesh` has the DIMENSIONS, and is there where the model is split; without it each process has all of the
    model and reads samples of its own. `background` is then for what goes on beside training. With several
    stages `mesh` is of the processes that have the same ones, and `pipeline` of those that have the different
    ones of a copy.
    """

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh | None = None
    pipeline: DeviceMesh | None = None
    background: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def data_size(self) -> int:
        """How many processes read different samples."""
        return self.size if self.mesh is None else self.mesh.size() // self.mesh["tp"].size()

    @property
    def data_rank(self) -> int:
        """This process's place among those; neighbours that split matrices have the same, and so do the
        stages of a pipeline.
        """
        return self.rank if self.mesh is None else self.rank % self.mesh.size() // self.mesh["tp"].size()

    @property
    def holders(self) -> int:
        """How many processes have something of what this one has."""
        return self.size if self.mesh is None else self.mesh.size()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """In place, over the processes that read different samples."""
        if self.mesh is not None:
            for dimension in DATA:
                if self.mesh[dimension].size() > 1:
                    dist.all_reduce(values, group=self.mesh[dimension].get_group())
        elif self.size > 1:
            dist.all_reduce(values)
        return values

    def sum_all(self, values: torch.Tensor) -> torch.Tensor:
        """In place, over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def from_last_stage(self, values: torch.Tensor) -> torch.Tensor:
        """In place, what the process with the last stage has, where there are stages."""
        if self.pipeline is not None:
            dist.broadcast(values, group=self.pipeline.get_group(), group_src=self.pipeline.size() - 1)
        return values

    def any(self, flag: bool) -> bool:
        if self.size == 1:
            return flag
        return bool(self.sum_all(torch.tensor([float(flag)], device=self.device)).item())

    def from_main(self, value: object) -> object:
        """The main process's value, for everyone."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def norm(self, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        """The norm of all `tensors` together, such as weights or gradients, wherever their parts are."""
        if self.mesh is None:
            return torch.nn.utils.get_total_norm(tensors)
        return self.sum_all(squares(tensors, self.holders)).sqrt().float()

    @property
    def loss_factor(self) -> int:
        """What each process multiplies its loss by, so that gradients are sums over processes: FSDP2
        takes their mean.
        """
        return 1 if self.mesh is None else self.data_size

    def sum_gradients(self, model: nn.Module) -> None:
        """Replaces each gradient by its sum over all processes, in buckets of the parameters' order. FSDP2
        has done it in the backward pass.
        """
        if self.size == 1 or self.mesh is not None:
            return
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        while gradients:
            bucket: list[torch.Tensor] = []
            while gradients and (
                not bucket or sum(g.numel() for g in bucket) + gradients[0].numel() <= BUCKET_ELEMENTS
            ):
                bucket.append(gradients.pop(0))
            flat = self.sum(torch.cat([gradient.flatten() for gradient in bucket]))
            for gradient, summed in zip(
                bucket, flat.split([gradient.numel() for gradient in bucket]), strict=True
            ):
                gradient.copy_(summed.view_as(gradient))

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


def join(parallel: ParallelConfig) -> World:
    """This process's world, from torchrun's environment variables; alone without them. TrainerError when
    `parallel` is not for so many processes.
    """
    rank, size, neighbour = (
        int(os.environ.get(key, default))
        for key, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    )
    sizes = _sizes(parallel, size)
    device = torch.device("cuda", neighbour) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size == 1:
        return World(rank, size, device)
    init_process_group(device, parallel.timeout_seconds)
    if not parallel.splits_model:
        return World(rank, size, device)
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=(STAGES, *DIMENSIONS))
    pipeline = mesh[STAGES] if parallel.pp > 1 else None
    return World(rank, size, device, mesh[DIMENSIONS], pipeline, dist.new_group(backend="gloo"))


def _sizes(parallel: ParallelConfig, processes: int) -> tuple[int, int, int, int]:
    """Those of STAGES and the DIMENSIONS."""
    copy = parallel.dp_shard * parallel.tp * parallel.pp
    copies = parallel.dp_replicate or max(1, processes // copy)
    if copies * copy != processes:
        wanted = f"dp_replicate {copies} x " if parallel.dp_replicate else "a multiple of "
        raise TrainerError(
            f"training.parallel is for {wanted}dp_shard {parallel.dp_shard} x tp {parallel.tp} x pp "
            f"{parallel.pp} = {copies * copy} processes, "
            f"and there are {processes}: start `torchrun --nproc-per-node={copies * copy} -m trainer ...`, "
            "or change training.parallel"
        )
    return parallel.pp, copies, parallel.dp_shard, parallel.tp


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
