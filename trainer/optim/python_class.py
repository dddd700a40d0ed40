"""Optimizers of other packages, by the name of their class. They are rehearsed on small tensors, so that what
cannot work ends the run before its first step.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from trainer.config import OptimizerConfig
from trainer.optim.second_pass import SecondPass
from trainer.optim.state import load_state_tensors, state_tensors
from trainer.system.errors import TrainerError, did_you_mean, first_line, in_every_process

Class = Callable[..., Optimizer]
# Before and after the state is saved and loaded: some optimizers do something else every tenth step.
STEPS = 11
RAISED = (Exception, SystemExit)  # sys.exit() in another's code must not end the run without a word


def build(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    """An optimizer of the configuration's class for these groups, each with `lr` and `weight_decay`.

    Raises TrainerError if the class cannot be loaded, does not take the groups or the parameters, cannot take
    a step, or does not resume from its saved state as if it had not stopped.
    """
    with in_every_process():
        rehearse(config, groups[0]["params"][0].device)
        return _made(_load(str(config.python)), groups, config)


def rehearse(config: OptimizerConfig, device: torch.device) -> float:
    """Takes some steps twice, the second time in two runs. Returns the bytes of state for each element of a
    matrix. Raises TrainerError as `build` does.
    """
    code, name = _load(str(config.python)), f"training.optimizer.python {config.python!r}"
    model = _Toy().to(device)
    whole = _made(code, model.groups(config), config)
    _take_steps(whole, model, range(STEPS), name)
    resumed = deepcopy(model)
    saved = {key: value.clone() for key, value in state_tensors(model, [whole]).items()}
    _take_steps(whole, model, range(STEPS, 2 * STEPS), name)

    optimizer = _made(code, resumed.groups(config), config)
    with _explained(f"{name} does not resume from its saved state"):
        load_state_tensors(resumed, [optimizer], saved)
    _take_steps(optimizer, resumed, range(STEPS, 2 * STEPS), f"{name} does not resume from its saved state:")
    if not torch.equal(model.matrix, resumed.matrix) or not torch.equal(model.vector, resumed.vector):
        raise TrainerError(
            f"{name} resumes from its saved state with other weights: it keeps something outside of `state` "
            "and of numbers in its groups, or draws from a global random generator. Choose another optimizer"
        )
    kept = sum(value.nbytes for key, value in saved.items() if key.endswith("/matrix"))
    return kept / model.matrix.numel()


class _Toy(nn.Module):
    """A matrix, which decays, and a vector, which does not."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.matrix = nn.Parameter(torch.randn(96, 64, generator=generator))
        self.vector = nn.Parameter(torch.ones(64))

    def groups(self, config: OptimizerConfig) -> list[dict[str, Any]]:
        rate = {"lr": config.lr, "base_lr": config.lr}
        return [
            {"params": [self.matrix], **rate, "weight_decay": config.weight_decay},
            {"params": [self.vector], **rate, "weight_decay": 0.0},
        ]

    def fill_gradients(self, step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        for parameter in self.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.device)


def _take_steps(optimizer: Optimizer, model: _Toy, steps: range, name: str) -> None:
    with _explained(f"{name} cannot take a step"):
        for step in steps:
            if isinstance(optimizer, SecondPass) and optimizer.wants_second_pass(step):
                model.fill_gradients(-1 - step)
                optimizer.read_second_pass(torch.tensor(64))
            model.fill_gradients(step)
            optimizer.step()


def _made(code: Class, groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    name = f"training.optimizer.python {config.python!r}"
    takes = inspect.signature(code).parameters
    names = [one for one, kind in takes.items() if kind.kind not in (kind.VAR_POSITIONAL, kind.VAR_KEYWORD)]
    takes_any = any(kind.kind is kind.VAR_KEYWORD for kind in takes.values())
    for given in config.params:
        if given not in names and not takes_any:
            hint = did_you_mean(given, names, f"it takes {', '.join(names[1:])}")
            raise TrainerError(f"{name} has no parameter {given!r} (training.optimizer.params): {hint}")
    if config.weight_decay and "weight_decay" not in names and not takes_any:
        raise TrainerError(f"{name} has no weight decay: leave out training.optimizer.weight_decay")
    lr = {"lr": config.lr} if "lr" in names else {}
    with _explained(f"{name} cannot be made from parameter groups and training.optimizer.params"):
        return code(groups, **lr, **config.params)


def _load(reference: str) -> Class:
    """The subclass of torch.optim.Optimizer that `package.module:Class` names."""
    module, _, path = reference.partition(":")
    where = f"training.optimizer.python {reference!r}"
    try:
        found: Any = importlib.import_module(module)
    except RAISED as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent is not None and f"{module}.".startswith(f"{absent}."):
            raise TrainerError(
                f"{where}: there is no module {absent!r}: install its package in .venv, or add its directory "
                "to PYTHONPATH"
            ) from None
        raise TrainerError(f"{where}: the module cannot be imported: {_error_text(error)}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, dir(found))
            raise TrainerError(f"{where}: {module} has no {name!r}{hint and f': {hint}'}")
        found = getattr(found, name)
    if not (isinstance(found, type) and issubclass(found, Optimizer)):
        raise TrainerError(f"{where} is not a subclass of torch.optim.Optimizer: name one that is")
    return found


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns what another's code raises into a TrainerError that begins with `what`."""
    try:
        yield
    except TrainerError:
        raise
    except RAISED as error:
        raise TrainerError(f"{what}: {_error_text(error)}") from error


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
