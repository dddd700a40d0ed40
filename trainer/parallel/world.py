"""The process group: who is who, and sums over all. A single process needs no group and pays nothing."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

BUCKET_ELEMENTS = 8 * 1024 * 1024


@dataclass(frozen=True)
class World:
    """One process's place among `size`. Every method is a collective: all processes call it, in the same order."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """In place, over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor([float(flag)], device=self.device)).item())

    def from_main(self, value: object) -> object:
        """The main process's value, for everyone."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def sum_gradients(self, model: nn.Module) -> None:
        """Replaces each gradient by its sum over all processes, in buckets of the parameters' order."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        while gradients:
            bucket: list[torch.Tensor] = []
            while gradients and (not bucket or sum(g.numel() for g in bucket) + gradients[0].numel() <= BUCKET_ELEMENTS):
                bucket.append(gradients.pop(0))
            flat = self.sum(torch.cat([gradient.flatten() for gradient in bucket]))
            for gradient, summed in zip(bucket, flat.split([gradient.numel() for gradient in bucket]), strict=True):
                gradient.copy_(summed.view_as(gradient))

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


def join() -> World:
    """This process's world, from torchrun's environment variables; alone without them."""
    rank, size, local = (int(os.environ.get(key, default)) for key, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", device_id=device if device.type == "cuda" else None)
    return World(rank, size, device)


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
