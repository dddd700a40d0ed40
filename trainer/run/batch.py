"""The rows of one process, ready for the model."""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch

from trainer.data.windows import PADDING
from trainer.model.attention import document_numbers
from trainer.model.loss import IGNORED
from trainer.run.learned_tokens import Answers


@dataclass(frozen=True)
class Batch:
    """`tokens` and `targets` are int64 [rows, seq_len]. A target that is not predicted is IGNORED.
    `documents` [rows, seq_len] numbers the documents of each row; None when they may attend to each other.
    `dropout_keys` [rows, 2] are those of `trainer.model.dropout`; None without dropout. `reference` belongs
    to preferences: fp32 [rows, pairs, 2], the reference's log-probability of each chosen and each rejected
    answer. Documents 1 and 2 of a row are its first pair. `draws` [rows, seq_len] are uniform numbers, for a
    second pass whose targets the model draws.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    documents: torch.Tensor | None = None
    dropout_keys: torch.Tensor | None = None
    reference: torch.Tensor | None = None
    draws: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        windows: torch.Tensor,
        bot_id: int | None,
        *,
        dropout_keys: torch.Tensor | None = None,
        answers: Answers | None = None,
        reference: torch.Tensor | None = None,
    ) -> "Batch":
        """The batch of windows [rows, seq_len + 1] int64, which are as `trainer.data.windows` describes them.

        With a `bot_id` documents are masked. A document begins at each [BOT] and at each token that is not a
        target, but consecutive padding is one document. With `answers` only these are targets.
        """
        read, targets = windows[:, :-1], windows[:, 1:]
        tokens, targets = torch.where(read < 0, ~read, read), torch.where(targets < 0, IGNORED, targets)
        documents = None if bot_id is None else _documents(read, bot_id)
        if answers is not None and documents is not None:
            targets = targets.where(answers.learned(tokens, targets, documents), IGNORED)
        return cls(tokens, targets, documents, dropout_keys, reference)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def seq_len(self) -> int:
        return self.tokens.shape[1]

    @property
    def learned(self) -> torch.Tensor:
        """Whether each target is predicted, bool [rows, seq_len]."""
        return self.targets != IGNORED

    @property
    def predicted(self) -> torch.Tensor:
        """What the loss is the mean of: the number of targets or, with a reference, of pairs. int64 []."""
        return (self.learned if self.reference is None else self.by_answer(self.learned)[..., 0] > 0).sum()

    @property
    def answers(self) -> torch.Tensor:
        """The number of the answer in its row that each token belongs to, int64 [rows, seq_len]. Answers 0
        and 1 are those of the first pair. Padding may have a number beyond that of the last answer.
        """
        assert self.documents is not None and self.reference is not None
        return (self.documents - 1).clamp(0, 2 * self.reference.shape[1])

    def by_answer(self, values: torch.Tensor) -> torch.Tensor:
        """Sums `values` [rows, seq_len] over each pair's two answers: float64 [rows, pairs, 2]."""
        assert self.reference is not None
        rows, pairs, _ = self.reference.shape
        sums = torch.zeros(rows, 2 * pairs + 1, dtype=torch.float64, device=values.device)
        return sums.scatter_add(1, self.answers, values.double())[:, :-1].view(rows, pairs, 2)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that this batch has, by their names."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def rows(self, chosen: slice | torch.Tensor) -> Self:
        """The batch of these rows."""
        return replace(self, **{name: tensor[chosen] for name, tensor in self.tensors().items()})

    def clone(self) -> Self:
        return replace(self, **{name: tensor.clone() for name, tensor in self.tensors().items()})


def _documents(read: torch.Tensor, bot_id: int) -> torch.Tensor:
    padding = read == PADDING
    continued = torch.zeros_like(padding)
    continued[:, 1:] = padding[:, 1:] & padding[:, :-1]
    return document_numbers(torch.where(read < 0, bot_id, read), bot_id) - continued.cumsum(dim=1)
