"""Builds the optimizers of a configuration; each parameter is in exactly one group of one optimizer.

A parameter has the optimizer's learning rate and weight decay, changed by the first group of the
configuration whose pattern matches its name.
"""

import difflib
import os
import shutil
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

import torch.distributed as dist
from lion_pytorch import Lion
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import AdamW, Optimizer

from trainer.config import OptimizerConfig, ParameterGroup
from trainer.optim import python_class
from trainer.optim.adafactor import Adafactor
from trainer.optim.muon import Muon
from trainer.optim.sophia import SophiaG
from trainer.parallel.dtensor import is_split
from trainer.system.errors import TrainerError, install


def build(
    model: nn.Module,
    config: OptimizerConfig,
    names: Collection[str] = (),
    holders: dist.ProcessGroup | None = None,
) -> list[Optimizer]:
    """Returns one optimizer, or [Muon, AdamW] for `muon`. Each group keeps its peak learning rate as
    `base_lr`.

    `names` are the parameters of the full model if `model` is one stage of a pipeline. `holders` are the
    processes over which this model is split or copied. Raises TrainerError if a group has no parameter, or
    the optimizer cannot be made.
    """
    parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
    _check_patterns(list(names or parameters), config.groups)
    if config.kind != "muon":
        return [_optimizer(_groups(parameters, config), config)]
    hidden = {name: parameter for name, parameter in parameters.items() if _is_hidden_matrix(name, parameter)}
    rest = {name: parameter for name, parameter in parameters.items() if name not in hidden}
    return [Muon(_groups(hidden, config), holders), _adamw(_groups(rest, config), config)]


def _check_patterns(names: list[str], groups: list[ParameterGroup]) -> None:
    """Raises TrainerError if a group has no parameter: its pattern matches none, or only parameters of
    earlier groups.
    """
    taken: set[str] = set()
    for group in groups:
        fitting = {name for name in names if fnmatchcase(name, group.pattern)}
        if not fitting:
            near = difflib.get_close_matches(group.pattern, names, n=3, cutoff=0.0)
            raise TrainerError(
                f"training.optimizer.groups: no parameter matches {group.pattern!r}; the most similar are "
                f"{', '.join(near)}"
            )
        if fitting <= taken:
            raise TrainerError(
                f"training.optimizer.groups: every parameter that matches {group.pattern!r} is in an "
                "earlier group; move this group before it"
            )
        taken |= fitting


def _is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Whether it is a matrix inside a block: neither a norm, nor the embedding, nor the head."""
    return parameter.ndim >= 2 and not name.endswith(("embed_tokens.weight", "lm_head.weight"))


def _groups(parameters: dict[str, nn.Parameter], config: OptimizerConfig) -> list[dict[str, Any]]:
    """Groups parameters by learning rate, decay and, if they are sharded, mesh, in the order of the model."""
    groups: dict[tuple[float, float, DeviceMesh | None], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        # A fused update takes tensors of one mesh.
        mesh = parameter.device_mesh if is_split(parameter) else None
        groups.setdefault((*_rate_and_decay(name, parameter, config), mesh), []).append(parameter)
    return [
        {"params": members, "lr": lr, "base_lr": lr, "weight_decay": decay}
        for (lr, decay, _), members in groups.items()
    ]


def _rate_and_decay(name: str, parameter: nn.Parameter, config: OptimizerConfig) -> tuple[float, float]:
    """The peak learning rate and the weight decay of one parameter."""
    group = next(
        (group for group in config.groups if fnmatchcase(name, group.pattern)), ParameterGroup(pattern=name)
    )
    lr = config.muon_lr if config.kind == "muon" and _is_hidden_matrix(name, parameter) else config.lr
    decay = group.weight_decay
    if decay is None:
        decay = config.weight_decay if parameter.ndim >= 2 and ".embed_tokens." not in f".{name}" else 0.0
    return lr * group.lr_multiplier, decay


def _optimizer(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    match config.kind:
        case "adafactor":
            return Adafactor(groups)
        case "lion":
            return Lion(groups, betas=config.betas)
        case "sophia":
            return SophiaG(groups, config.betas, config.sophia_rho)
        case "adamw_8bit":
            return _adamw_8bit(groups, config)
        case "python":
            return python_class.build(groups, config)
    return _adamw(groups, config)


def _adamw(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    return AdamW(groups, betas=config.betas, eps=config.eps, fused=True)


def _adamw_8bit(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    try:
        from torchao.optim import AdamW8bit
    except ImportError as error:
        raise TrainerError(
            f"training.optimizer.kind adamw_8bit needs torchao: run {install('torchao')}, or set it to adamw"
        ) from error
    on_cpu = groups[0]["params"][0].device.type == "cpu"
    if on_cpu and not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        raise TrainerError(
            "training.optimizer.kind adamw_8bit compiles its update, which needs a C++ compiler on a CPU: "
            "install g++ or clang++, or set it to adamw"
        )
    return AdamW8bit(groups, betas=config.betas, eps=config.eps)


def set_learning_rates(optimizers: list[Optimizer], factor: float) -> None:
    """Sets the learning rate of each group to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # a new float would compile torchao's step again
                group["lr"].fill_(group["base_lr"] * factor)
            else:
                group["lr"] = group["base_lr"] * factor
