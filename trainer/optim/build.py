"""Builds the optimizers of a configuration; each parameter is in exactly one group of one optimizer."""

from collections.abc import Collection
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import AdamW, Optimizer

from trainer.config import OptimizerConfig
from trainer.optim.adafactor import Adafactor
from trainer.optim.groups import check_patterns, is_hidden_matrix, rate_and_decay
from trainer.optim.lion import Lion
from trainer.optim.muon import Muon
from trainer.optim.sophia import SophiaG
from trainer.parallel.dtensor import is_split
from trainer.system.errors import TrainerError


def build(
    model: nn.Module,
    config: OptimizerConfig,
    names: Collection[str] = (),
    holders: dist.ProcessGroup | None = None,
) -> list[Optimizer]:
    """Returns one optimizer, or [Muon, AdamW] for `muon`. Each group keeps its peak learning rate as
    `base_lr`.

    `names` are the parameters of the full model if `model` is one stage of a pipeline. `holders` are the
    processes over which this model is split or copied. Raises TrainerError as check_patterns does.
    """
    parameters = dict(model.named_parameters())
    check_patterns(list(names or parameters), config.groups)
    if config.kind != "muon":
        return [_optimizer(_groups(parameters, config), config)]
    hidden = {name: parameter for name, parameter in parameters.items() if is_hidden_matrix(name, parameter)}
    rest = {name: parameter for name, parameter in parameters.items() if name not in hidden}
    return [Muon(_groups(hidden, config), holders), _adamw(_groups(rest, config), config)]


def _groups(parameters: dict[str, nn.Parameter], config: OptimizerConfig) -> list[dict[str, Any]]:
    """Groups parameters by learning rate, decay and, if they are sharded, mesh, in the order of the model."""
    groups: dict[tuple[float, float, DeviceMesh | None], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        # A fused update takes tensors of one mesh.
        mesh = parameter.device_mesh if is_split(parameter) else None
        groups.setdefault((*rate_and_decay(name, parameter, config), mesh), []).append(parameter)
    return [
        {"params": members, "lr": lr, "base_lr": lr, "weight_decay": decay}
        for (lr, decay, _), members in groups.items()
    ]


def _optimizer(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    if config.kind == "lion":
        return Lion(groups, config.resolved_betas)
    if config.kind == "sophia":
        return SophiaG(groups, config.resolved_betas, config.sophia_rho)
    if config.kind == "adafactor":
        return Adafactor(groups)
    if config.kind == "adamw_8bit":
        return _adamw_8bit(groups, config)
    return _adamw(groups, config)


def _adamw(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    return AdamW(groups, betas=config.resolved_betas, eps=config.eps, fused=True)


def _adamw_8bit(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    try:
        from torchao.optim import AdamW8bit
    except ImportError as error:
        raise TrainerError(
            "training.optimizer.kind adamw_8bit needs torchao: pip install 'groundwork[torchao]', or set "
            "it to adamw"
        ) from error
    return AdamW8bit(groups, betas=config.resolved_betas, eps=config.eps)


def set_learning_rates(optimizers: list[Optimizer], factor: float) -> None:
    """Sets the learning rate of each group to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # a new float would recompile a compiled step
                group["lr"].fill_(group["base_lr"] * factor)
            else:
                group["lr"] = group["base_lr"] * factor
