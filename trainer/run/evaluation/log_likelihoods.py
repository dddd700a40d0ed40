"""The log-likelihood of continuations of contexts. What they share is computed once: the beginning of all
contexts, such as the examples of a few-shot prompt, and the context of all continuations of a question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import torch

from trainer.model.cache import POSITIONS, KeyValueCache
from trainer.model.llama import Llama
from trainer.model.loss import log_probabilities
from trainer.model.precision import Precision, autocast

Tokens = tuple[int, ...]


@dataclass
class _Branches:
    """A context and the continuations that begin at its end, each with its place among the results."""

    context: Tokens
    continuations: list[tuple[int, Tokens]] = field(default_factory=list)

    @property
    def longest(self) -> int:
        return max(len(continuation) for _, continuation in self.continuations)


@torch.no_grad()
def log_likelihoods(
    model: Llama, requests: Sequence[tuple[Tokens, Tokens]], precision: Precision
) -> list[float]:
    """For each (context, continuation), in tokens, the sum of log p(token) over the continuation, in nats.

    A context that does not fit before its continuation loses tokens from its beginning. A continuation that
    is longer than the model's context is computed in pieces of half of it, each after what precedes it.
    """
    results = [0.0] * len(requests)
    whole: dict[Tokens, _Branches] = {}
    cut: dict[Tokens, _Branches] = {}
    for number, (context, asked) in enumerate(requests):
        size = len(asked) if len(asked) <= model.max_length else max(1, model.max_length // 2)
        for at in range(0, len(asked), size):
            before, piece = context + asked[:at], asked[at : at + size]
            fitting = fit_to_context(before, piece, model.max_length)
            kind = whole if len(fitting) == len(before) else cut
            kind.setdefault(fitting, _Branches(fitting)).continuations.append((number, piece))
    device = model.device
    with autocast(precision, device):  # once for all: at its end it forgets the weights in half precision
        for kind in (whole, cut):
            shared = _shared_beginning(list(kind))
            beginning = KeyValueCache(len(shared))
            if shared:
                model(torch.tensor([shared], device=device), cache=beginning)
            for batch in _batches(list(kind.values()), POSITIONS[device.type]):
                for number, value in _computed(model, beginning, batch):
                    results[number] += value
    return results


def fit_to_context(context: Tokens, continuation: Tokens, max_length: int) -> Tokens:
    """The end of the context for which a model of so many positions has room before the continuation. The
    last token of the continuation is predicted and not read.
    """
    return context[-(max_length - len(continuation) + 1) :]


def _shared_beginning(contexts: list[Tokens]) -> Tokens:
    """The tokens that all contexts begin with, without the last one of the shortest."""
    if len(contexts) < 2:
        return ()
    # The first and the last of sorted sequences differ earliest.
    first, last = min(contexts), max(contexts)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return first[: min(same, min(map(len, contexts)) - 1)]


def _batches(branches: list[_Branches], positions: int) -> Iterator[list[_Branches]]:
    """Contexts of one length each, so that only continuations are padded."""
    batch: list[_Branches] = []
    for one in sorted(branches, key=lambda one: (len(one.context), one.longest)):
        alike = not batch or len(batch[0].context) == len(one.context)
        rows = sum(len(other.continuations) for other in (*batch, one))
        if not alike or (batch and rows * (len(one.context) + one.longest) > positions):
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _computed(model: Llama, beginning: KeyValueCache, batch: list[_Branches]) -> Iterator[tuple[int, float]]:
    device = model.device
    rest = torch.tensor([one.context[beginning.room :] for one in batch], device=device)
    rows, length = torch.zeros(len(batch), dtype=torch.int64, device=device), len(batch[0].context)
    cache = beginning.selected(rows, length)
    ends = model(rest, cache=cache)[:, -1:]
    continuations = [
        (row, number, tokens) for row, one in enumerate(batch) for number, tokens in one.continuations
    ]
    contexts, numbers, tokens = zip(*continuations, strict=True)
    places, width = torch.tensor(contexts, device=device), max(map(len, tokens))
    targets = torch.tensor([[*one, *[0] * (width - len(one))] for one in tokens], device=device)
    lengths = torch.tensor([len(one) for one in tokens], device=device)
    counted = torch.arange(width, device=device) < lengths[:, None]
    # The first token is predicted at the end of the context: one token alone needs no more.
    states = ends[places]
    if width > 1:
        more = cache.selected(places, length + width - 1)
        states = torch.cat([states, model(targets[:, :-1], cache=more)], dim=1)
    values = torch.zeros(targets.shape, dtype=torch.float64, device=device)
    found = log_probabilities(states[counted], model.lm_head.weight, targets[counted], model.vocab_size)
    values[counted] = found.double()
    yield from zip(numbers, values.sum(dim=1).tolist(), strict=True)
