"""The learning rate and weight decay of each parameter: the optimizer's, changed by the first group whose
pattern matches its name.
"""

import difflib
from fnmatch import fnmatchcase

from torch import nn

from trainer.config import OptimizerConfig, ParameterGroup
from trainer.system.errors import TrainerError


def is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Whether it is a matrix inside a block: neither a norm, nor the embedding, nor the head."""
    return parameter.ndim >= 2 and not name.endswith(("embed_tokens.weight", "lm_head.weight"))


def rate_and_decay(name: str, parameter: nn.Parameter, config: OptimizerConfig) -> tuple[float, float]:
    """The peak learning rate and the weight decay of one parameter."""
    group = next(
        (group for group in config.groups if fnmatchcase(name, group.pattern)), ParameterGroup(pattern=name)
    )
    lr = config.muon_lr if config.kind == "muon" and is_hidden_matrix(name, parameter) else config.lr
    decay = group.weight_decay
    if decay is None:
        decay = (
            config.weight_decay if parameter.ndim >= 2 and not name.endswith("embed_tokens.weight") else 0.0
        )
    return lr * group.lr_multiplier, decay


def check_patterns(names: list[str], groups: list[ParameterGroup]) -> None:
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
