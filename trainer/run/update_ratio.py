"""How far a step moves the weights, for a share of a step's time that does not grow with the model."""

from dataclasses import dataclass

import torch
from torch import nn

from trainer.parallel.dtensor import local_tensor, replication
from trainer.parallel.world import World

SAMPLED = 4096


@dataclass(frozen=True)
class WeightSizes:
    """`param_norm` of all weights; `update_ratio` the norm of a step's change over it, None when the weights
    before were not remembered.
    """

    param_norm: float
    update_ratio: float | None


class UpdateProbe:
    """Looks at evenly spaced weights, at most SAMPLED of each parameter that a process holds, each standing
    for those between.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self._world = world
        self._parameters = [parameter.detach() for parameter in model.parameters()]
        self._parts = [local_tensor(parameter) for parameter in self._parameters]
        # What several processes hold counts once when their sums are added up, which is where the model is
        # split.
        holders = [
            1 if world.mesh is None else replication(parameter, world.holders)
            for parameter in self._parameters
        ]
        sampled = zip(self._parts, self._samples(), holders, strict=True)
        self._scales = torch.cat(
            [
                torch.full_like(sample, part.numel() / max(1, sample.numel()) / held)
                for part, sample, held in sampled
            ]
        )
        self._before: torch.Tensor | None = None

    def _samples(self) -> list[torch.Tensor]:
        return [part.flatten()[:: max(1, -(-part.numel() // SAMPLED))].float() for part in self._parts]

    def remember(self) -> None:
        """Before a step."""
        self._before = torch.cat(self._samples())

    def sizes(self) -> "WeightSizes":
        """After it. A collective where the model is split."""
        return WeightSizes(self._world.norm(self._parameters).item(), self._ratio())

    def _ratio(self) -> float | None:
        if self._before is None:
            return None
        before, self._before = self._before, None
        change = torch.cat(self._samples()) - before
        squares = torch.stack(
            [(self._scales * change.square()).sum(), (self._scales * before.square()).sum()]
        )
        if self._world.mesh is not None:
            self._world.sum_all(squares)
        moved, size = squares.sqrt().tolist()
        return moved / size if size else None
