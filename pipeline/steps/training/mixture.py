"""How much of the training each corpus makes, and how often its text is seen at the planned budget."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.recipe.mixture import MixtureParams
from pipeline.store.errors import PipelineError
from pipeline.store.versions import Version
from trainer.config import TrainingConfig


class MixtureError(PipelineError):
    """The corpora cannot make the mixture that was asked for."""


@dataclass(frozen=True)
class Contribution:
    """What a corpus contributes: its training documents and tokens, its share of what is trained on, and how
    often that repeats it.
    """

    corpus: str
    documents: int
    tokens: int
    share: float
    epochs: float


def shares(
    tokens: Mapping[str, int], weights: Mapping[str, float | None], params: MixtureParams, max_tokens: int
) -> dict[str, float]:
    """The share of `max_tokens` that each corpus of `tokens` makes, adding up to 1; the order of samples
    rounds them to 1/4096.

    Raises MixtureError when `max_epochs` of everything is less than `max_tokens`.
    """
    wanted = {name: weights.get(name) or size ** (1 / params.temperature) for name, size in tokens.items()}
    if params.max_epochs is None:
        return _scaled(wanted, 1.0)
    allowed = int(params.max_epochs * sum(tokens.values()))
    if allowed < max_tokens:  # not by adding shares up, which rounding can leave below 1
        raise MixtureError(
            f"mixture.max_epochs is {params.max_epochs:g}, which allows {allowed:,} tokens of the "
            f"{sum(tokens.values()):,} that there are, "
            f"but training.max_tokens is {max_tokens:,}: lower that, raise max_epochs, or add text"
        )
    most = {name: params.max_epochs * size / max_tokens for name, size in tokens.items()}
    capped: dict[str, float] = {}
    while True:
        found = _scaled(
            {name: weight for name, weight in wanted.items() if name not in capped}, 1 - sum(capped.values())
        )
        over = {name: most[name] for name, share in found.items() if share > most[name]}
        if not over:
            return {name: capped.get(name, found.get(name, 0.0)) for name in tokens}
        capped |= over


def contributions(
    shards: Mapping[str, Version],
    weights: Mapping[str, float | None],
    params: MixtureParams,
    training: TrainingConfig,
) -> list[Contribution]:
    """One row for each corpus, those with nothing to train on included, over all stages of the training.
    Raises MixtureError.
    """
    tokens = {
        name: version.counts["train_tokens"]
        for name, version in shards.items()
        if version.counts["train_tokens"]
    }
    whole = shares(tokens, weights, params, training.max_tokens)
    planned = dict.fromkeys(shards, 0.0)
    for stage in training.curriculum.stages:
        for name, share in (whole if stage.weights is None else _scaled(stage.weights, 1.0)).items():
            planned[name] += share * stage.tokens / training.max_tokens
    return [
        _contribution(name, version.counts, planned[name], training.max_tokens)
        for name, version in shards.items()
    ]


def _contribution(corpus: str, counts: Mapping[str, int], share: float, max_tokens: int) -> Contribution:
    tokens = counts["train_tokens"]
    return Contribution(
        corpus,
        counts["train_documents"],
        tokens,
        round(share, 4),
        round(share * max_tokens / max(tokens, 1), 3),
    )


def _scaled(weights: Mapping[str, float], total: float) -> dict[str, float]:
    scale = total / (sum(weights.values()) or 1.0)
    return {name: weight * scale for name, weight in weights.items()}
