"""Split tensors: the part that this process holds, its place in the full tensor, and the way back."""

import functools
import itertools
import logging
import math
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch.distributed.device_mesh import DeviceMesh

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

# Each process would warn that gathering a tensor that is split twice takes two steps.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


def is_split(tensor: torch.Tensor) -> "TypeGuard[DTensor]":
    """Whether a tensor is a DTensor. Does not import their module, which takes a second: where it was not
    imported there is none.
    """
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The part that this process holds, sharing its memory; an unsplit tensor as it is."""
    return tensor.to_local() if is_split(tensor) else tensor


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The full tensor, on every process. A collective if the tensor is split."""
    return tensor.full_tensor() if is_split(tensor) else tensor


def local_slices(tensor: torch.Tensor, rank: int | None = None) -> tuple[slice, ...]:
    """The slices of the full tensor that `local_tensor(tensor)` holds, one for each dimension; with a `rank`,
    in the process with this rank in the flattened mesh.
    """
    if not is_split(tensor):
        return tuple(slice(0, size) for size in tensor.shape)
    mesh = tensor.device_mesh
    coordinates = mesh.get_coordinate() if rank is None else _coordinates(mesh.shape)[rank]
    assert coordinates is not None
    return _slices_at(tensor.shape, mesh.shape, tensor.placements, tuple(coordinates))


def in_one_copy(tensor: torch.Tensor, rank: int, other: int) -> bool:
    """Whether two processes, by their ranks in the flattened mesh, hold parts of one copy of a split
    tensor.
    """
    assert is_split(tensor)
    here, there = (_coordinates(tensor.device_mesh.shape)[one] for one in (rank, other))
    return all(
        a == b
        for a, b, placement in zip(here, there, tensor.placements, strict=True)
        if placement.is_replicate()
    )


@functools.cache
def _coordinates(mesh_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, mesh_shape)))


@functools.cache
def _slices_at(
    shape: torch.Size,
    mesh_shape: tuple[int, ...],
    placements: "tuple[Placement, ...]",
    coordinates: tuple[int, ...],
) -> tuple[slice, ...]:
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

    sizes, offsets = _compute_local_shape_and_global_offset(shape, mesh_shape, list(coordinates), placements)
    return tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))


def squares(tensors: Iterable[torch.Tensor], processes: int) -> torch.Tensor:
    """This process's share of the sum of squares over all elements, in float64.

    The sum of the shares over all `processes` counts each element once.
    """
    shares = []
    for tensor in tensors:
        placements = tensor.placements if is_split(tensor) else ()
        split = [dimension for dimension, one in enumerate(placements) if not one.is_replicate()]
        parts = math.prod(map(tensor.device_mesh.size, split)) if is_split(tensor) else 1
        shares.append(local_tensor(tensor).float().square().sum().double() * parts / processes)
    return torch.stack(shares).sum()


def is_first_holder(tensor: torch.Tensor, mesh: DeviceMesh) -> bool:
    """Whether this process has the lowest rank among those of `mesh` that hold the same part of a tensor."""
    names: tuple[str, ...] = tensor.device_mesh.mesh_dim_names or () if is_split(tensor) else ()
    placements = tensor.placements if is_split(tensor) else ()
    split = {name for name, placement in zip(names, placements, strict=True) if not placement.is_replicate()}
    return all(mesh.get_local_rank(name) == 0 for name in mesh.mesh_dim_names or () if name not in split)


@torch.no_grad()
def fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copies `values` (the full tensor) into this process's part. Rows that `values` lacks become zero."""
    part, rows = local_tensor(tensor), values[local_slices(tensor)]
    part[: len(rows)] = rows
    part[len(rows) :] = 0.0


def as_part_of(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`values`, shaped like `local_tensor(tensor)`, on its device and split as it is."""
    values = values.to(tensor.device)
    if not is_split(tensor):
        return values
    place, shape, stride = (tensor.device_mesh, tensor.placements), tensor.shape, tensor.stride()
    return tensor.from_local(values, *place, run_check=False, shape=shape, stride=stride)
