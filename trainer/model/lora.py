"""Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): beside each frozen linear layer of the blocks, two
small matrices that are trained. In embedding and head, the rows of a few tokens are.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from trainer.config import LoraConfig
from trainer.model.llama import Llama, generator

PARTS = ("down", "up", "rows")


class LoraLinear(nn.Linear):
    """x @ weight^T + scale * x @ down^T @ up^T: `down` [rank, in_features], `up` [out_features, rank]."""

    down: nn.Parameter
    up: nn.Parameter
    scale: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added = nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return nn.functional.linear(x, self.weight) + self.scale * added

    def merged(self) -> torch.Tensor:
        """The weight of a linear layer that computes the same."""
        return self.weight + self.scale * self.up @ self.down


class _TrainedRows(nn.Module):
    """A layer whose matrix has a row for each token. It is frozen; `rows` [tokens, d_model] stand in place of
    those of `tokens`. Each use of `weight` copies the matrix, as in peft.
    """

    rows: nn.Parameter
    tokens: torch.Tensor

    def __getattr__(self, name: str) -> Any:
        value: Any = super().__getattr__(name)
        return value.index_copy(0, self.tokens, self.rows) if name == "weight" else value


class LoraEmbedding(_TrainedRows, nn.Embedding):
    pass


class LoraHead(_TrainedRows, nn.Linear):
    pass


def adapt(model: Llama, config: LoraConfig, seed: int, tokens: Sequence[int] = ()) -> None:
    """Freezes the `model`, adds adapters to the linear layers of its blocks and trains the rows of `tokens`,
    all of which changes nothing yet. As in peft, down is uniform within 1 / sqrt(in_features), and up zero;
    drawn by (seed, name).
    """
    model.requires_grad_(False)
    for name, layer in model.model.layers.named_modules():
        if isinstance(layer, nn.Linear):
            device, rows = layer.weight.device, (config.rank, layer.in_features)
            layer.__class__ = LoraLinear  # in place, so that names and hooks stay
            assert isinstance(layer, LoraLinear)
            bound = layer.in_features**-0.5
            drawn = torch.empty(rows).uniform_(-bound, bound, generator=generator(seed, f"{name}.down"))
            layer.down = nn.Parameter(drawn.to(device))
            layer.up = nn.Parameter(torch.zeros(layer.out_features, config.rank, device=device))
            layer.scale = config.alpha / config.rank
    if tokens:
        _train_rows(model, tokens)


def _train_rows(model: Llama, tokens: Sequence[int]) -> None:
    embedding, head = model.model.embed_tokens, model.lm_head
    at = torch.tensor(tokens, device=embedding.weight.device)
    rows = [nn.Parameter(layer.weight.detach()[at]) for layer in (embedding, head)]
    if model.config.tie_embeddings:
        rows[1] = rows[0]
    for layer, kind, own in zip((embedding, head), (LoraEmbedding, LoraHead), rows, strict=True):
        layer.__class__ = kind
        assert isinstance(layer, _TrainedRows)
        layer.rows, layer.tokens = own, at


def adapters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of all adapters by name; none without LoRA."""
    return {name: one for name, one in model.named_parameters() if name.rpartition(".")[2] in PARTS}


@torch.no_grad()
def merged_parameters(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters by name, those with an adapter merged with it, one at a time."""
    for name, parameter in model.named_parameters():
        owner, _, part = name.rpartition(".")
        layer = model.get_submodule(owner)
        if part in PARTS:
            continue
        if isinstance(layer, LoraLinear):
            yield name, layer.merged()
        else:
            yield name, layer.weight if isinstance(layer, _TrainedRows) else parameter
