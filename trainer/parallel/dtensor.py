"""Parts of tensors: what this process holds of one that is split, where that lies in the whole, and back."""

import logging
import math
from collections.abc import Iterable

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

# It warns, once in each process, that what is split twice is gathered in two steps.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds, sharing memory with it; all of a tensor that is not split."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of it, on every process. A collective where it is split."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def region(tensor: torch.Tensor) -> tuple[slice, ...]:
    """Where `local(tensor)` lies in the whole."""
    if not isinstance(tensor, DTensor):
        return tuple(slice(0, size) for size in tensor.shape)
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))


def copies(tensor: torch.Tensor, processes: int) -> int:
    """How many of all `processes` hold the same part."""
    if not isinstance(tensor, DTensor):
        return processes
    mesh = tensor.device_mesh
    parts = math.prod(
        mesh.size(dimension)
        for dimension, placement in enumerate(tensor.placements)
        if not placement.is_replicate()
    )
    return processes // parts


def squares(tensors: Iterable[torch.Tensor], processes: int) -> torch.Tensor:
    """This process's share of the sum of all squares, in float64: added up over all `processes` it counts
    each element once.
    """
    return torch.stack(
        [local(tensor).float().square().sum().double() / copies(tensor, processes) for tensor in tensors]
    ).sum()


def is_first_holder(tensor: torch.Tensor, mesh: DeviceMesh) -> bool:
    """Whether this process comes first among those of `mesh` that hold the same part of a tensor."""
    names: tuple[str, ...] = tensor.device_mesh.mesh_dim_names or () if isinstance(tensor, DTensor) else ()
    placements = tensor.placements if isinstance(tensor, DTensor) else ()
    split = {name for name, placement in zip(names, placements, strict=True) if not placement.is_replicate()}
    return all(mesh.get_local_rank(name) == 0 for name in mesh.mesh_dim_names or () if name not in split)


@torch.no_grad()
def fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copies this process's part of `values` into its part of a tensor; rows that `values` lacks become
    zero.
    """
    part, rows = local(tensor), values[region(tensor)]
    part[: len(rows)] = rows
    part[len(rows) :] = 0.0


def as_part_of(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`values` of the shape of `local(tensor)`, on its device, split as it is."""
    values = values.to(tensor.device)
    if not isinstance(tensor, DTensor):
        return values
    return DTensor.from_local(
        values,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )
