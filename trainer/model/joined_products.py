"""One product for the layers of a block that read the same numbers."""

from collections.abc import Callable, Sequence
from typing import Any

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
        if not _trains():
            return super().project(x)
        # Norms end in a reduction, which the compiler keeps apart by itself.
        normed = not isinstance(self.q_norm, nn.Identity)
        return joined((self.q_proj, self.k_proj, self.v_proj), x, split if normed else _Parts.apply)


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


def split(product: torch.Tensor, sizes: list[int]) -> Sequence[torch.Tensor]:
    return product.split(sizes, dim=-1)


def joined(
    layers: Sequence[nn.Linear],
    x: torch.Tensor,
    cut: Callable[[torch.Tensor, list[int]], Sequence[torch.Tensor]] = split,
) -> Sequence[torch.Tensor]:
    """What each of `layers`, which have no biases, makes of `x`, as parts of one product in its type, which
    `cut` cuts into as many numbers as each layer gives.
    """
    weight = torch.cat([layer.weight.to(x.dtype) for layer in layers])
    return cut(nn.functional.linear(x, weight), [layer.out_features for layer in layers])


@torch.library.custom_op("groundwork::side_by_side", mutates_args=())
def side_by_side(parts: list[torch.Tensor]) -> torch.Tensor:
    """torch.cat of the last dimension, which the compiler does not look into."""
    return torch.cat(parts, dim=-1)


@side_by_side.register_fake
def _(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(parts, dim=-1)


class _Parts(torch.autograd.Function):
    """As `split`. Its backward pass has the gradients of the parts computed first, and then put side by side.

    From the rotations' backward passes and a plain split, the compiler makes one kernel with a branch for
    each part, which reads each number several times: on an H200, a tenth of a step of 124 M parameters.
    """

    @staticmethod
    def forward(ctx: Any, product: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, ...]:
        return product.split(sizes, dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return side_by_side(list(gradients)), None
