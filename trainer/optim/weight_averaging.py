"""An average of the weights over the run. It is kept in the optimizers' state, so that it is saved and
sharded with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

AVERAGE = "average"
# The slot of the weights in training while the model has the averaged weights.
TRAINED = "trained"


@torch.no_grad()
def update(half_life_tokens: int, optimizers: list[Optimizer], *, before: int, tokens: int) -> None:
    """Updates the average after a step from `before` to `tokens` tokens of the run."""
    # At first the plain mean: otherwise the first weights would dominate until the half-life has passed.
    share = max(1 - 0.5 ** ((tokens - before) / half_life_tokens), (tokens - before) / tokens)
    for parameter, state in _states(optimizers):
        if AVERAGE in state:
            state[AVERAGE].lerp_(parameter, share)
        else:
            state[AVERAGE] = parameter.detach().clone()


def drop(optimizers: list[Optimizer]) -> None:
    """Deletes an average that would no longer be updated."""
    for _, state in _states(optimizers):
        state.pop(AVERAGE, None)


@contextmanager
def use_averaged_weights(optimizers: list[Optimizer]) -> Iterator[None]:
    """Gives the model its averaged weights, if there are any yet, while the context is entered."""
    with torch.no_grad():
        for parameter, state in _states(optimizers):
            if AVERAGE in state:
                state[TRAINED] = parameter.detach().clone()
                parameter.copy_(state[AVERAGE])
    try:
        yield
    finally:
        put_back(optimizers)


@torch.no_grad()
def put_back(optimizers: list[Optimizer]) -> None:
    """Gives the weights in training back to the model."""
    for parameter, state in _states(optimizers):
        if TRAINED in state:
            parameter.copy_(state.pop(TRAINED))


def _states(optimizers: list[Optimizer]) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield parameter, optimizer.state[parameter]
