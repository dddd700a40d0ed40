"""Checks of conversations before the first step."""

import numpy as np

from trainer.config import ChatIds, RunConfig
from trainer.data.shards import Shard
from trainer.system.errors import TrainerError

SEARCHED_TOKENS = 1 << 20  # of a shard, for an answer
KINDS = {1: "single conversations", 2: "pairs of a chosen and a rejected conversation"}


def check(config: RunConfig) -> None:
    """Raises TrainerError for shards that the objective cannot learn from, by the beginning of each and the
    lengths of all.
    """
    objective, chat, data = config.training.objective, config.data.chat, config.data
    if objective == "pretrain" or chat is None:
        return
    answered = set()
    for corpus in data.corpora:
        for prefix in (*corpus.train, *corpus.validation):
            shard, told = Shard(prefix), f"corpus {corpus.name!r}: {prefix}"
            if not shard.num_documents:
                continue
            first = shard.document(0)
            found, wanted = int((first == data.bot_id).sum()), 2 if objective == "dpo" else 1
            if found != wanted:
                raise TrainerError(
                    f"{told} holds {KINDS.get(found, 'other documents')}, and training.objective {objective} "
                    f"learns from {KINDS[wanted]}: leave the corpus out, or change the objective"
                )
            _check_lengths(told, shard, config.training.seq_len, chat)
            if (shard.tokens[:SEARCHED_TOKENS] == chat.assistant).any():
                answered.add("train" if prefix in corpus.train else "validation")
    for split, what in (("train", "answers to learn"), ("validation", "held-out answers")):
        if split not in answered:
            raise TrainerError(
                f"no corpus has {what} in its {split} shards, which training.objective {objective} needs: "
                "add conversations, or hold out a larger share of them"
            )


def _check_lengths(told: str, shard: Shard, seq_len: int, chat: ChatIds) -> None:
    long = np.flatnonzero(shard.lengths > seq_len + 1)
    roles = [chat.system, chat.user, chat.assistant, chat.tool]
    for document in long[np.isin(shard.seconds(long), roles)][:1]:
        raise TrainerError(
            f"{told}: document {document} has {shard.lengths[document]} tokens, but a row of seq_len "
            f"{seq_len} holds {seq_len + 1}: raise it, or tokenize for it"
        )
