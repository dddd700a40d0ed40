"""The rows of one process, ready for the model."""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch

from trainer.data.windows import PADDING
from trainer.model.attention import document_numbers
from trainer.model.llama import Llama
from trainer.model.loss import IGNORED
from trainer.optim.sophia import draw_tokens, draws


@dataclass(frozen=True)
class Batch:
    """`tokens` and `targets` are int64 [rows, seq_len]; a target that is not predicted is IGNORED.

    `documents` [rows, seq_len] numbers the documents of each row; None when they may attend to each other.
    `dropout_keys` [rows, 2] are those of `trainer.model.dropout`; None without dropout. `draws` [rows,
    seq_len] belong to a resampled batch only.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    documents: torch.Tensor | None = None
    dropout_keys: torch.Tensor | None = None
    draws: torch.Tensor | None = None

    @classmethod
    def of(
        cls, windows: torch.Tensor, bot_id: int | None, dropout_keys: torch.Tensor | None = None
    ) -> "Batch":
        """From windows [rows, seq_len + 1] int64 as `trainer.data.windows` describes them.

        With a `bot_id` documents are masked: one begins at each [BOT] and at each token that is not a target,
        but consecutive padding is one.
        """
        read, targets = windows[:, :-1], windows[:, 1:]
        return cls(
            torch.where(read < 0, ~read, read),
            torch.where(targets < 0, IGNORED, targets),
            None if bot_id is None else _documents(read, bot_id),
            dropout_keys,
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def seq_len(self) -> int:
        return self.tokens.shape[1]

    @property
    def predicted(self) -> torch.Tensor:
        """How many targets there are, int64 []."""
        return (self.targets != IGNORED).sum()

    def rows(self, chosen: slice | torch.Tensor) -> Self:
        """The batch of these rows."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self, **{name: tensor[chosen] for name, tensor in tensors.items() if tensor is not None}
        )

    def resampled(self, seed: int, first_sample: int) -> Self:
        """The batch with the text's targets replaced by tokens that the model draws itself.

        The draws are a function of `seed` and each row's sample number, which counts from `first_sample`.
        """
        return replace(self, draws=draws(seed, first_sample, len(self), self.seq_len).to(self.tokens.device))

    def targets_for(self, model: Llama, hidden: torch.Tensor) -> torch.Tensor:
        """The targets [rows * seq_len] of the final hidden states [rows * seq_len, d_model]."""
        targets = self.targets.flatten()
        if self.draws is None:
            return targets
        drawn = draw_tokens(hidden, model.lm_head.weight, self.draws.flatten(), model.vocab_size)
        return torch.where(targets == IGNORED, IGNORED, drawn)


def _documents(read: torch.Tensor, bot_id: int) -> torch.Tensor:
    padding = read == PADDING
    continued = torch.zeros_like(padding)
    continued[:, 1:] = padding[:, 1:] & padding[:, :-1]
    return document_numbers(torch.where(read < 0, bot_id, read), bot_id) - continued.cumsum(dim=1)
