"""Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): beside each frozen linear layer of the blocks, two
small matrices that are trained.
"""

import hashlib
from collections.abc import Iterator

import torch
from torch import nn

from trainer.config import LoraConfig

PARTS = ("down", "up")


class LoraLinear(nn.Linear):
    """x @ weight^T + scale * x @ down^T @ up^T: `down` [rank, in_features], `up` [out_features,
    rank].
    """

    down: nn.Parameter
    up: nn.Parameter
    scale: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added = nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return nn.functional.linear(x, self.weight) + self.scale * added

    def merged(self) -> torch.Tensor:
        """The weight of a linear layer that computes the same."""
        return self.weight + self.scale * self.up @ self.down


def adapt(model: nn.Module, blocks: nn.Module, config: LoraConfig, seed: int) -> None:
    """Freezes the `model` and adds adapters to the linear layers of its `blocks`, which change nothing yet.
    As in peft, down is uniform within 1 / sqrt(in_features), and up zero; drawn by (seed, name).
    """
    model.requires_grad_(False)
    for name, layer in blocks.named_modules():
        if isinstance(layer, nn.Linear):
            device, rows = layer.weight.device, (config.rank, layer.in_features)
            layer.__class__ = LoraLinear  # in place, so that names and hooks stay
            assert isinstance(layer, LoraLinear)
            digest = hashlib.blake2b(f"{seed}/{name}.down".encode(), digest_size=8).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
            bound = layer.in_features**-0.5
            layer.down = nn.Parameter(
                torch.empty(rows).uniform_(-bound, bound, generator=generator).to(device)
            )
            layer.up = nn.Parameter(torch.zeros(layer.out_features, config.rank, device=device))
            layer.scale = config.alpha / config.rank


def adapters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of all adapters by name; none without LoRA."""
    return {
        f"{name}.{part}": getattr(layer, part)
        for name, layer in model.named_modules()
        if isinstance(layer, LoraLinear)
        for part in PARTS
    }


@torch.no_grad()
def merged_parameters(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters by name, those with an adapter merged with it, one at a time."""
    for name, parameter in model.named_parameters():
        owner, _, part = name.rpartition(".")
        layer = model.get_submodule(owner)
        if isinstance(layer, LoraLinear):
            if part == "weight":
                yield name, layer.merged()
        else:
            yield name, parameter
