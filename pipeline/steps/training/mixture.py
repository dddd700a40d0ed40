"""The share of each corpus in the training, and how often its text is repeated at the planned budget."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.recipe.sections import MixtureParams
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from trainer.config import TrainingConfig
from trainer.data.order import shares_in_turns
from trainer.system.errors import TrainerError


@dataclass(frozen=True)
class Contribution:
    """A corpus's training documents and tokens, its share of the tokens trained on, and its repetitions."""

    corpus: str
    documents: int
    tokens: int
    share: float
    epochs: float


def shares(
    tokens: Mapping[str, int],
    weights: Mapping[str, float | None],
    params: MixtureParams,
    max_tokens: int,
    steady: bool = False,
) -> dict[str, float]:
    """The share of each corpus of `tokens` in `max_tokens`. The shares add up to 1; the order of samples
    rounds them (`rounded`). `steady`: a small change of a corpus seldom changes any share without a weight.
    Raises PipelineError when `max_epochs` of everything is less than `max_tokens`.
    """
    # `steady`: the nearest of eight sizes in each doubling, at most 4.5% off.
    sizes = {
        name: 2.0 ** (round(8 * math.log2(size)) / 8) if steady else size for name, size in tokens.items()
    }
    wanted = {name: weights.get(name) or size ** (1 / params.temperature) for name, size in sizes.items()}
    if params.max_epochs is None:
        return _scaled(wanted, 1.0)
    available = sum(tokens.values())
    allowed = int(params.max_epochs * available)
    if allowed < max_tokens:  # compares tokens, since rounding can leave the sum of the shares below 1
        raise PipelineError(
            f"mixture.max_epochs is {params.max_epochs:g}, which allows {allowed:,} tokens of the "
            f"{available:,} that there are, but training.max_tokens is {max_tokens:,}: lower max_tokens, "
            "raise max_epochs, or add text"
        )
    most = {name: params.max_epochs * size / max_tokens for name, size in tokens.items()}
    capped: dict[str, float] = {}
    while True:
        uncapped = {name: weight for name, weight in wanted.items() if name not in capped}
        scaled = _scaled(uncapped, 1 - sum(capped.values()))
        over = {name: most[name] for name, share in scaled.items() if share > most[name]}
        if not over:
            return {name: capped.get(name, scaled.get(name, 0.0)) for name in tokens}
        capped |= over


def rounded(weights: Mapping[str, float]) -> dict[str, float]:
    """The shares that training gives to corpora with these weights. Raises PipelineError."""
    try:
        return shares_in_turns(weights)
    except TrainerError as error:
        raise PipelineError(str(error)) from error


def contributions(
    shards: Mapping[str, Version],
    weights: Mapping[str, float | None],
    params: MixtureParams,
    training: TrainingConfig,
) -> list[Contribution]:
    """A row per corpus, even with nothing to train on, over all stages. Raises PipelineError."""
    tokens = {name: version.counts["train_tokens"] for name, version in shards.items()}
    nonempty = {name: size for name, size in tokens.items() if size}
    default = shares(nonempty, weights, params, training.max_tokens, training.is_steady)
    planned = dict.fromkeys(shards, 0.0)
    for stage in training.curriculum.stages:
        for name, share in rounded(default if stage.weights is None else stage.weights).items():
            planned[name] += share * stage.tokens / training.max_tokens
    rows = []
    for name, version in shards.items():
        share, epochs = planned[name], planned[name] * training.max_tokens / max(tokens[name], 1)
        documents = version.counts["train_documents"]
        rows.append(Contribution(name, documents, tokens[name], round(share, 4), round(epochs, 3)))
    return rows


def _scaled(weights: Mapping[str, float], total: float) -> dict[str, float]:
    scale = total / (sum(weights.values()) or 1.0)
    return {name: weight * scale for name, weight in weights.items()}
