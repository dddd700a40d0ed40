"""Checks of conversations before the first step."""

import numpy as np

from trainer.config import ChatIds, RunConfig
from trainer.data.shards import Shard
from trainer.system.errors import TrainerError


def check(config: RunConfig) -> None:
    """Raises TrainerError for shards that the objective cannot learn from, by the first document of each
    shard and by the length of all: single conversations for preferences or the reverse, conversations that do
    not fit into a row, or no answers to learn or to validate with.
    """
    objective, chat = config.training.objective, config.data.chat
    if objective == "pretrain" or chat is None:
        return
    with_answers = set()
    for corpus in config.data.corpora:
        for split, prefixes in (("train", corpus.train), ("validation", corpus.validation)):
            for shard in map(Shard, prefixes):
                if not shard.num_documents:
                    continue
                first = shard.document(0)
                _check_kind(corpus.name, shard, int((first == config.data.bot_id).sum()), objective)
                _check_lengths(corpus.name, shard, config.training.seq_len, chat)
                with_answers |= {split} if (first == chat.assistant).any() else set()
    for split, what in (("train", "answers to learn"), ("validation", "held-out answers")):
        if split not in with_answers:
            raise TrainerError(
                f"no corpus has {what} in its {split} shards, which training.objective {objective} needs: "
                "add conversations, or hold out a larger share of them"
            )


def _check_kind(corpus: str, shard: Shard, found: int, objective: str) -> None:
    wanted = 2 if objective == "dpo" else 1
    if found != wanted:
        kinds = {1: "single conversations", 2: "pairs of a chosen and a rejected conversation"}
        raise TrainerError(
            f"corpus {corpus!r}: {shard.prefix} holds {kinds.get(found, 'other documents')}, and "
            f"training.objective {objective} learns from {kinds[wanted]}: leave the corpus out, or change "
            "the objective"
        )


def _check_lengths(corpus: str, shard: Shard, seq_len: int, chat: ChatIds) -> None:
    long = np.flatnonzero(shard.lengths > seq_len + 1)
    roles = [chat.system, chat.user, chat.assistant, chat.tool]
    for document in long[np.isin(shard.seconds(long), roles)][:1]:
        raise TrainerError(
            f"corpus {corpus!r}: document {document} of {shard.prefix} has {shard.lengths[document]} tokens, "
            f"but a row of training.seq_len {seq_len} holds {seq_len + 1}: raise it, or tokenize for it"
        )
