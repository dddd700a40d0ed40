"""Sophia-G (Liu et al. 2023): momentum over an estimate of the curvature's diagonal, clipped element by
element.

Source of the update: the authors' github.com/Liuhong99/Sophia. The Gauss-Newton-Bartlett estimate (their
algorithm 2) is B times the square of the gradient of the mean loss over B positions whose targets the model
draws itself.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from trainer.optim.by_parameter import trained

EPS = 1e-15
INTERVAL = 10  # steps between estimates, each of which costs another pass; as in the paper
# Logits of one chunk. A GPU needs more of them than a CPU's cache holds to be busy.
CHUNK_LOGITS = {"cpu": 2 * 1024 * 1024, "cuda": 32 * 1024 * 1024}


class SophiaG(Optimizer):
    """Call `update_curvature` before every tenth `step` (see `estimating`). Decoupled weight decay; two
    tensors of state per parameter.
    """

    def __init__(self, groups: list[dict[str, Any]], betas: tuple[float, float], rho: float) -> None:
        super().__init__(groups, {"betas": betas, "rho": rho})

    @torch.no_grad()
    def update_curvature(self, positions: torch.Tensor) -> None:
        """Reads the gradients of the mean loss over `positions` targets that the model drew itself."""
        for group, parameter, state, gradient in trained(self):
            _prepare(state, parameter)
            state["curvature"].lerp_(gradient.square() * positions, 1 - group["betas"][1])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group, parameter, state, gradient in trained(self):
            _prepare(state, parameter)
            momentum = state["exp_avg"].lerp_(gradient, 1 - group["betas"][0])
            ratio = (momentum.abs() / (group["rho"] * state["curvature"] + EPS)).clamp_(max=1.0)
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.addcmul_(momentum.sign(), ratio, value=-group["lr"])


def estimating(optimizers: Iterable[Optimizer], step: int) -> list[SophiaG]:
    """Those of the optimizers that estimate the curvature before step `step` (from 0)."""
    return [one for one in optimizers if isinstance(one, SophiaG) and step % INTERVAL == 0]


def _prepare(state: dict[str, torch.Tensor], parameter: torch.Tensor) -> None:
    if not state:
        state["exp_avg"], state["curvature"] = torch.zeros_like(parameter), torch.zeros_like(parameter)


def draws(seed: int, first_sample: int, samples: int, length: int) -> torch.Tensor:
    """Uniform numbers [samples, length]; each row is a function of (seed, sample number), so that it does not
    depend on how a batch is divided.
    """
    rows = []
    for sample in range(first_sample, first_sample + samples):
        key = hashlib.blake2b(f"{seed}/draw/{sample}".encode(), digest_size=8).digest()
        rows.append(
            torch.rand(length, generator=torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1))
        )
    return torch.stack(rows)


@torch.no_grad()
def draw_tokens(
    hidden: torch.Tensor, head: torch.Tensor, uniform: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Draws a token for each position from the softmax of the logits hidden head', by inverse transform
    sampling.

    `hidden` [n, d_model], `head` [padded vocabulary, d_model], `uniform` [n]; returns int64 [n].
    """
    drawn = torch.empty(len(hidden), dtype=torch.int64, device=hidden.device)
    rows = max(1, CHUNK_LOGITS[hidden.device.type] // vocab_size)
    weight = head[:vocab_size].to(hidden.dtype).T
    for start in range(0, len(hidden), rows):
        logits = hidden[start : start + rows] @ weight
        cumulative = logits.float().softmax(dim=-1).cumsum(dim=-1)
        below = uniform[start : start + rows, None] * cumulative[:, -1:]
        drawn[start : start + rows] = torch.searchsorted(cumulative, below, right=True)[:, 0].clamp(
            max=vocab_size - 1
        )
    return drawn
