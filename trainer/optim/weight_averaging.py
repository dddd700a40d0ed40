"""Averages of the weights over the run. They are kept in the optimizers' state, so that they are saved and
sharded with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainer.config import AveragingConfig, ExponentialAverage

AVERAGE, RECENT = "average", "recent_"
# The slot of the weights in training while the model has the averaged weights.
TRAINED = "trained"


def slots(averaging: AveragingConfig | None) -> list[str]:
    """The slots of the averages in an optimizer's state, one copy of the weights each."""
    if averaging is None:
        return []
    return (
        [AVERAGE]
        if isinstance(averaging, ExponentialAverage)
        else [f"{RECENT}{number}" for number in range(averaging.k)]
    )


@torch.no_grad()
def update(averaging: AveragingConfig, optimizers: list[Optimizer], before: int, tokens: int) -> None:
    """Updates the averages after a step from `before` to `tokens` tokens of the run."""
    if isinstance(averaging, ExponentialAverage):
        # At first the plain mean: otherwise the first weights would dominate until the half-life has passed.
        share = max(1 - 0.5 ** ((tokens - before) / averaging.half_life_tokens), (tokens - before) / tokens)
        for parameter, state in _states(optimizers):
            if AVERAGE in state:
                state[AVERAGE].lerp_(parameter, share)
            else:
                state[AVERAGE] = parameter.detach().clone()
    elif tokens // averaging.every_tokens > before // averaging.every_tokens:
        slot = f"{RECENT}{tokens // averaging.every_tokens % averaging.k}"
        for parameter, state in _states(optimizers):
            state[slot] = parameter.detach().clone()


def fill(averaging: AveragingConfig, optimizers: list[Optimizer]) -> None:
    """Allocates all averages, as updates over a run would."""
    every = 1 if isinstance(averaging, ExponentialAverage) else averaging.every_tokens
    for number in range(len(slots(averaging))):
        update(averaging, optimizers, number * every, (number + 1) * every)


def drop_others(averaging: AveragingConfig | None, optimizers: list[Optimizer]) -> None:
    """Deletes averages of other settings, which would no longer be updated."""
    for _, state in _states(optimizers):
        for slot in set(_averages(state)) - set(slots(averaging)):
            del state[slot]


@contextmanager
def use_averaged_weights(optimizers: list[Optimizer]) -> Iterator[None]:
    """Gives the model its averaged weights, if there are any yet, while the context is entered."""
    with torch.no_grad():
        for parameter, state in _states(optimizers):
            copies = [state[slot] for slot in _averages(state)]
            if copies:
                state[TRAINED] = parameter.detach().clone()
                parameter.copy_(sum(copies[1:], start=copies[0]) / len(copies))
    try:
        yield
    finally:
        put_back(optimizers)


@torch.no_grad()
def put_back(optimizers: list[Optimizer]) -> None:
    """Gives the model the weights in training back."""
    for parameter, state in _states(optimizers):
        if TRAINED in state:
            parameter.copy_(state.pop(TRAINED))


def _states(optimizers: list[Optimizer]) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield parameter, optimizer.state[parameter]


def _averages(state: dict[str, Tensor]) -> list[str]:
    return sorted(slot for slot in state if slot == AVERAGE or slot.startswith(RECENT))
