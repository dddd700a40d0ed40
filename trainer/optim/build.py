"""From the configuration to optimizers, each parameter in exactly one group."""

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from trainer.config import OptimizerConfig


def parameter_groups(model: nn.Module, config: OptimizerConfig) -> dict[str, dict[str, nn.Parameter]]:
    """The parameters by role and name: `hidden` (matrices inside blocks), `embedding`, `head`, `norm`. A tied head is the embedding."""
    groups: dict[str, dict[str, nn.Parameter]] = {"hidden": {}, "embedding": {}, "head": {}, "norm": {}}
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            groups["norm"][name] = parameter
        elif name.endswith("embed_tokens.weight"):
            groups["embedding"][name] = parameter
        elif name.endswith("lm_head.weight"):
            groups["head"][name] = parameter
        elif parameter.ndim == 2:
            groups["hidden"][name] = parameter
        else:
            raise ValueError(f"no rule for parameter {name} of shape {tuple(parameter.shape)}")
    return groups


def build(model: nn.Module, config: OptimizerConfig) -> list[Optimizer]:
    """AdamW alone, or Muon for `hidden` and AdamW for the rest. Each group keeps its full learning rate as `base_lr`."""
    groups = parameter_groups(model, config)
    rates = {"hidden": config.lr, "embedding": config.embedding_lr or config.lr, "head": config.head_lr or config.lr, "norm": config.lr}
    decayed = {"hidden", "head"}
    optimizers: list[Optimizer] = []
    if config.kind == "muon":
        hidden = list(groups.pop("hidden").values())
        optimizers.append(
            Muon(
                [{"params": hidden, "base_lr": config.muon_lr}],
                lr=config.muon_lr,
                weight_decay=config.weight_decay,
                momentum=config.muon_momentum,
                ns_steps=config.muon_steps,
            )
        )
    adamw = [
        {"params": list(named.values()), "base_lr": rates[role], "lr": rates[role], "weight_decay": config.weight_decay if role in decayed else 0.0}
        for role, named in groups.items()
        if named
    ]
    optimizers.append(AdamW(adamw, betas=config.betas, eps=config.eps, fused=True))
    return optimizers


def set_learning_rates(optimizers: list[Optimizer], factor: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
