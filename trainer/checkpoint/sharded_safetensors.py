"""Sharded tensors in safetensors files: each process writes what it holds, and any process reads the region
that it needs.

The header of a file lists its partial tensors under PARTS: `{"<name>": {"offset": [...], "shape": [...]}}`,
where `shape` is that of the full tensor.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from trainer.system.tensor_files import save_tensors

PARTS = "parts"
Region = tuple[slice, ...]


@dataclass(frozen=True)
class TensorPart:
    """A file holds a part of a tensor of `shape`; the part begins at `offset`."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]


def save_parts(path: Path, tensors: dict[str, torch.Tensor], parts: Mapping[str, TensorPart]) -> None:
    """Writes `tensors` to a file; those that `parts` does not name are full tensors."""
    listed = {name: {"offset": part.offset, "shape": part.shape} for name, part in parts.items()}
    save_tensors(tensors, path, {PARTS: json.dumps(listed, sort_keys=True)} if listed else None)


class SavedTensors(ExitStack):
    """The tensors of files that belong together, readable until the context is left."""

    def __init__(self, paths: Iterable[Path]) -> None:
        super().__init__()
        self._paths = list(paths)
        self._found: dict[str, list[tuple[Any, TensorPart]]] = {}
        for path in self._paths:
            file = self.enter_context(safe_open(path, framework="pt"))
            listed = json.loads((file.metadata() or {}).get(PARTS, "{}"))
            parts = {
                name: TensorPart(tuple(part["offset"]), tuple(part["shape"])) for name, part in listed.items()
            }
            for name in file.keys():  # noqa: SIM118 (not a dict)
                shape = tuple(file.get_slice(name).get_shape())
                self._found.setdefault(name, []).append(
                    (file, parts.get(name, TensorPart((0,) * len(shape), shape)))
                )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each full tensor by name."""
        return {name: found[0][1].shape for name, found in self._found.items()}

    def read(self, name: str, region: Region | None = None) -> torch.Tensor:
        """Assembles a tensor, or a region of it, from the parts. Raises ValueError if a part is missing."""
        found = self._found[name]
        if region is None:
            region = tuple(slice(0, size) for size in found[0][1].shape)
        nothing: torch.Tensor = found[0][0].get_slice(name)[(slice(0, 0),) * len(region)]
        result = nothing.new_empty([axis.stop - axis.start for axis in region])
        missing = result.numel()
        for file, part in found:
            stored = file.get_slice(name)
            shared = [
                slice(max(axis.start, at), min(axis.stop, at + size))
                for axis, at, size in zip(region, part.offset, stored.get_shape(), strict=True)
            ]
            if all(axis.start < axis.stop for axis in shared):
                values = stored[_counted_from(part.offset, shared)]
                result[_counted_from([axis.start for axis in region], shared)] = values
                missing -= values.numel()
        if missing:
            raise ValueError(
                f"{name}: {missing} of its elements are missing from "
                f"{', '.join(path.name for path in self._paths)}"
            )
        return result


def _counted_from(begins: Iterable[int], region: Iterable[slice]) -> Region:
    return tuple(slice(axis.start - at, axis.stop - at) for axis, at in zip(region, begins, strict=True))
