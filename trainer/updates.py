"""How far a step moves the weights, for a share of a step's time that does not grow with the model."""

import torch
from torch import nn

SAMPLED = 4096


class UpdateProbe:
    """Looks at evenly spaced weights, at most SAMPLED of each parameter, each standing for those between."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [parameter.detach() for parameter in model.parameters()]
        self._scales = torch.cat([torch.full_like(s, p.numel() / s.numel()) for p, s in zip(self._parameters, self._samples(), strict=True)])
        self._before: torch.Tensor | None = None

    def _samples(self) -> list[torch.Tensor]:
        return [parameter.flatten()[:: -(-parameter.numel() // SAMPLED)].float() for parameter in self._parameters]

    def remember(self) -> None:
        """Before a step."""
        self._before = torch.cat(self._samples())

    def ratio(self) -> float | None:
        """After it: the norm of the change over the norm of the weights; None when nothing was remembered."""
        if self._before is None:
            return None
        before, self._before = self._before, None
        change = torch.cat(self._samples()) - before
        squares = torch.stack([(self._scales * change.square()).sum(), (self._scales * before.square()).sum()])
        moved, size = squares.sqrt().tolist()
        return moved / size if size else None
