"""Held-out conversations of a section of `post_training` -> the answers that its variants are scored on."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.recipe.recipe import Recipe
from pipeline.sources.benchmarks.items import Benchmark, Question
from pipeline.stages import bpe, chat
from pipeline.stages.held_out import held_out
from pipeline.steps.model.benchmark import AskedBenchmark
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.store import keys
from pipeline.store.parts import kept_documents
from pipeline.store.store import Store
from trainer.data.message_tokenizer import for_messages

MOST_CONVERSATIONS = 1_000  # of each corpus, in the order of their ids

Message = tuple[str, str]  # role, content
Fits = Callable[[Sequence[Message]], int]  # how many messages of a conversation fit into the context


class Reply(Question):
    """An answer behind the messages before it. Of a preference, the better answer and then the worse one."""

    context: str = ""
    messages: tuple[dict[str, str], ...]

    @classmethod
    def of(cls, said: Sequence[Message], *wanted: str) -> "Reply":
        before = tuple({"role": role, "content": content} for role, content in said)
        return cls(messages=before, continuations=wanted, gold=0)


def asked(store: Store, recipe: Recipe, fraction: float) -> list[AskedBenchmark]:
    """The answers of each corpus of a section, with a cluster for each conversation. `fraction` is the share
    of the documents that all recipes hold out which are compared. Raises StoreError.
    """
    fits = fitting(store, recipe)
    metric = "accuracy" if recipe.training.objective == "dpo" else None
    found = []
    for name in recipe.weights:
        texts = islice(of_corpus(store, name, fraction), MOST_CONVERSATIONS)
        replies = [
            (one, str(number)) for number, (text, _) in enumerate(texts) for one in of_text(text, fits)
        ]
        if replies:
            items, clusters = zip(*replies, strict=True)
            source = {"kind": "held out", "corpus": name}
            found.append(
                AskedBenchmark(Benchmark(f"{name}.answers", items, metric), source, clusters, answers=True)
            )
    return found


def of_text(text: str, fits: Fits) -> Iterator[Reply]:
    """The answers of a conversation that are learned: those that fit into the context. Of a preference, the
    first two that differ, if both conversations fit as a whole.
    """
    said, *others = chat.parsed(text)
    if not others:
        for place, (role, content) in enumerate(said[: fits(said)]):
            if role == "assistant" and content:
                yield Reply.of(said[:place], content)
        return
    pairs = enumerate(zip(said, others[0], strict=False))
    place, differing = next(((at, pair) for at, pair in pairs if pair[0] != pair[1]), (0, ()))
    fitting = all(fits(one) == len(one) for one in (said, others[0]))
    if fitting and differing and all(role == "assistant" and content for role, content in differing):
        yield Reply.of(said[:place], *(content for _, content in differing))


def fitting(store: Store, recipe: Recipe) -> Fits:
    """What fits into the context, as for the shards."""
    tokenizer = TokenizerFiles.read(store.current(keys.TOKENIZER).directory())
    encoder = bpe.Encoder(for_messages(tokenizer.tokenizer_json), tokenizer.boundaries, fast=False)
    longest = recipe.shard_params.longest or 0

    def fits(said: Sequence[Message]) -> int:
        contents = pa.array([content for _, content in said], pa.large_string())
        _, lengths = encoder.between(np.zeros(len(said), np.int64), contents, 0)
        return int(np.searchsorted(np.cumsum(lengths) + 2, longest, side="right"))

    return fits


def of_corpus(store: Store, corpus: str, fraction: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Text and metadata of the held-out documents of a corpus, in the order of their ids."""
    for batch in kept_documents(store, corpus, ["id", "text", "metadata"]):
        taken = held_out(batch.column("id"), fraction)
        for row in batch.filter(pa.array(taken)).to_pylist():
            yield row["text"], json.loads(row["metadata"] or "{}")
