"""RMSNorm and rotation with backward passes of their own, for uncompiled training on a CPU. There each pass
over memory costs more than its arithmetic, and these take about half as many passes as autograd's.
"""

from typing import Any

import torch


def applies_to(*tensors: torch.Tensor) -> bool:
    """Whether these are plain tensors on a CPU, outside the compiler, which fuses the passes itself. Not the
    fake ones of a memory estimate, which a GPU's plan is made of too: on a CPU it counts too much.
    """
    return not torch.compiler.is_compiling() and all(
        tensor.device.type == "cpu" and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        for tensor in tensors
    )


class RMSNormed(torch.autograd.Function):
    """x [..., size] over its root mean square, times `weight` [size]. In fp32 or wider; returns `dtype`."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float, dtype: torch.dtype
    ) -> torch.Tensor:
        wide = x.to(torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32))
        squares = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_()
        scale = squares.div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        gradient = gradients[0].to(normed.dtype)
        products = gradient * normed
        with torch.autocast("cpu", enabled=False):
            shares = (products @ weight.to(normed.dtype)).div_(x.shape[-1]).unsqueeze(-1)
        weight_gradient = products.flatten(0, -2).sum(dim=0).to(weight.dtype)
        torch.mul(gradient, weight, out=products)
        x_gradient = products.addcmul_(normed, shares, value=-1).mul_(scale).to(x.dtype)
        return x_gradient, weight_gradient, None, None


class Rotated(torch.autograd.Function):
    """x [batch, heads, length, head_dim] rotated by the angles with `cos` and `sin` [1, length, head_dim],
    whose two halves are equal.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(gradients[0], cos, sin, -1), None, None


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, direction: int) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = x * cos
    turned[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-direction)
    turned[..., half:].addcmul_(x[..., :half], sin[..., half:], value=direction)
    return turned
