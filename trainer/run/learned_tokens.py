"""Which tokens of conversations are learned: a function of ids, since no text can spell a control token."""

from dataclasses import dataclass
from typing import Self

import torch

from trainer.config import ChatIds, DataConfig, TrainingConfig


@dataclass(frozen=True)
class Answers:
    """Answers with their [END] are learned, and text without messages as a whole; of a conversation's answers
    only the `last` one, if that is wanted.
    """

    bot_id: int
    eot_id: int
    chat: ChatIds
    last: bool

    @classmethod
    def of(cls, data: DataConfig, training: TrainingConfig) -> Self | None:
        """The answers that a run learns; None where it learns every token."""
        if training.objective == "pretrain" or data.chat is None:
            return None
        return cls(data.bot_id, data.eot_id, data.chat, training.learn == "last")

    def count(self, tokens: torch.Tensor) -> torch.Tensor:
        """How many answers begin in `tokens`, int64 []."""
        return (tokens == self.chat.assistant).sum()

    def learned(self, tokens: torch.Tensor, targets: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        """Whether each of `targets`, the tokens after `tokens`, is learned. All are int64 [rows, length], and
        the result bool; `documents` numbers the documents of a row.

        What a token belongs to is told by the last control token up to it.
        """
        chat, places = self.chat, torch.arange(tokens.shape[1], device=tokens.device)
        others = (chat.system, chat.user, chat.tool, chat.end)
        begins = (self.bot_id, chat.system, chat.user, chat.tool, chat.assistant)
        places = places.where(_among(tokens, (*begins, chat.end, self.eot_id)), -1).cummax(dim=1).values
        belongs_to = tokens.gather(1, places.clamp(min=0)).where(places >= 0, self.eot_id)
        learned = ~_among(belongs_to, others) & ~_among(targets, begins)
        if self.last:
            answers = (tokens == chat.assistant).cumsum(dim=1)
            most = answers.new_zeros(len(tokens), tokens.shape[1] + 2)
            most = most.scatter_reduce(1, documents, answers, "amax").gather(1, documents)
            learned &= (belongs_to != chat.assistant) | (answers == most)
        return learned


def _among(tokens: torch.Tensor, ids: tuple[int, ...]) -> torch.Tensor:
    return torch.isin(tokens, torch.tensor(ids, device=tokens.device))
