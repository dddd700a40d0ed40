"""Optimizers that read a second pass over the batch, whose targets the model draws itself."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
from torch.optim import Optimizer

from trainer.model.llama import generator

# Logits of one chunk. A GPU needs more of them than a CPU's cache holds to be busy.
CHUNK_LOGITS = {"cpu": 2 * 1024 * 1024, "cuda": 32 * 1024 * 1024}


@runtime_checkable
class SecondPass(Protocol):
    """What an optimizer has that reads the gradients of the mean loss over targets drawn from the model's own
    predictions. The training step asks for it, whichever class the optimizer is of.
    """

    def wants_second_pass(self, step: int) -> bool:
        """Whether this optimizer wants a second pass before step `step` (from 0). The answer is the same in
        every process.
        """
        ...

    def read_second_pass(self, targets: torch.Tensor) -> None:
        """Reads the gradients, which are in `grad` of each parameter, neither scaled nor clipped. `targets`,
        int64 [], is the number that their loss is the mean over. Not called when they are not finite.
        """
        ...


def wanting(optimizers: Iterable[Optimizer], step: int) -> list[SecondPass]:
    """The optimizers that want a second pass before step `step` (from 0)."""
    return [one for one in optimizers if isinstance(one, SecondPass) and one.wants_second_pass(step)]


def draws(seed: int, *, first_sample: int, samples: int, length: int) -> torch.Tensor:
    """Uniform numbers [samples, length]. Each row is a function of `seed` and its sample's number in the run,
    so it does not depend on how a batch is divided, or on where a run was resumed.
    """
    rows = [
        torch.rand(length, generator=generator(seed, f"draw/{sample}"))
        for sample in range(first_sample, first_sample + samples)
    ]
    return torch.stack(rows)


@torch.no_grad()
def draw_tokens(
    hidden: torch.Tensor, head: torch.Tensor, uniform: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Draws a token for each position from the softmax of the logits `hidden` x `head`', by inverse transform
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
        found = torch.searchsorted(cumulative, below, right=True)[:, 0]
        drawn[start : start + rows] = found.clamp(max=vocab_size - 1)
    return drawn
