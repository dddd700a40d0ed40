"""How far a step moves the weights, estimated from a sample so that the cost does not grow with the model."""

from dataclasses import dataclass

import torch
from torch import nn

from trainer.parallel.dtensor import local_tensor, replication
from trainer.parallel.world import World

SAMPLED = 4096


@dataclass(frozen=True)
class WeightSizes:
    """`param_norm` is the norm of all weights; `update_ratio` the norm of a step's change relative to it,
    None if `remember` was not called before the step.
    """

    param_norm: float
    update_ratio: float | None


class UpdateProbe:
    """Samples evenly spaced weights, at most SAMPLED of each parameter that a process holds, each scaled to
    stand for its neighbours.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self._world = world
        self._parameters = [parameter.detach() for parameter in model.parameters()]
        self._parts = [local_tensor(parameter) for parameter in self._parameters]
        # In a split model the processes' sums are added up: weights that several hold must count once.
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
        """Call before a step."""
        self._before = torch.cat(self._samples())

    def sizes(self) -> "WeightSizes":
        """Call after the step. A collective if the model is split."""
        sizes = self._world.norm(self._parameters)[None]
        if self._before is not None:
            before, self._before = self._before, None
            change = torch.cat(self._samples()) - before
            squares = torch.stack(
                [(self._scales * change.square()).sum(), (self._scales * before.square()).sum()]
            )
            if self._world.mesh is not None:
                self._world.sum_all(squares)
            sizes = torch.cat([sizes, squares.sqrt()])
        norm, *sampled = sizes.tolist()  # together: on a GPU each read waits for all that was launched
        return WeightSizes(norm, sampled[0] / sampled[1] if sampled and sampled[1] else None)
