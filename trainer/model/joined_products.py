"""One product for the layers of a block that read the same numbers."""

from collections.abc import Sequence

import torch
from torch import nn

from trainer.model.llama import MLP, Attention


def join_products(blocks: nn.Module) -> None:
    """Has `blocks` compute queries, keys and values in one product, and gate and up in one, where a compiler
    traces them for training. On a GPU that is fewer launches, and the gradient with respect to their input is
    written and read once instead of once a layer.

    Names and weights stay. Layers in fp8 or with an adapter are called as they are. The layers must not be
    split by tensor parallelism.
    """
    for module in blocks.modules():
        for kind, joined_kind, names in JOINED:
            if type(module) is kind and all(type(getattr(module, name)) is nn.Linear for name in names):
                module.__class__ = joined_kind


class JoinedAttention(Attention):
    def project(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        return joined((self.q_proj, self.k_proj, self.v_proj), x) if _trains() else super().project(x)


class JoinedMLP(MLP):
    def project(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        return joined((self.gate_proj, self.up_proj), x) if _trains() else super().project(x)


JOINED = (
    (Attention, JoinedAttention, ("q_proj", "k_proj", "v_proj")),
    (MLP, JoinedMLP, ("gate_proj", "up_proj")),
)


def _trains() -> bool:
    """Whether this is traced for training: an evaluation is compiled too, but has no gradients to save."""
    return torch.compiler.is_compiling() and torch.is_grad_enabled()


def joined(layers: Sequence[nn.Linear], x: torch.Tensor) -> Sequence[torch.Tensor]:
    """What each of `layers`, which have no biases, makes of `x`, as parts of one product in its type."""
    weight = torch.cat([layer.weight.to(x.dtype) for layer in layers])
    return nn.functional.linear(x, weight).split([layer.out_features for layer in layers], dim=-1)
