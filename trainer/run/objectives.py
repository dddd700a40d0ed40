"""What a step lowers and an evaluation measures: the loss of tokens, or that of preferences."""

from dataclasses import dataclass
from typing import Protocol

import torch

from trainer.config import TrainingConfig
from trainer.model.llama import Llama
from trainer.model.loss import IGNORED, summed_cross_entropy
from trainer.model.precision import Precision, autocast
from trainer.optim.second_pass import draw_tokens
from trainer.run.batch import Batch
from trainer.run.dpo_loss import PairLoss


class Loss(Protocol):
    """`metrics` names what is reported beside the loss."""

    @property
    def metrics(self) -> tuple[str, ...]: ...

    def sums(self, model: Llama, hidden: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """A number whose gradients are those of the summed loss of the batch, whose last hidden states are
        `hidden`; and the sums of the loss and of the `metrics`, [1 + metrics], without gradients.
        """
        ...


@dataclass(frozen=True)
class TokenLoss:
    """The cross-entropy of each target in nats, with the gradients of `z_loss`."""

    z_loss: float = 0.0
    metrics: tuple[str, ...] = ()

    def sums(self, model: Llama, hidden: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, targets, z_loss = hidden.flatten(0, 1), batch.targets.flatten(), self.z_loss
        if batch.draws is not None:
            drawn = draw_tokens(hidden, model.lm_head.weight, batch.draws.flatten(), model.vocab_size)
            targets, z_loss = drawn.where(targets != IGNORED, IGNORED), 0.0
        loss = summed_cross_entropy(
            hidden, model.lm_head.weight, targets, model.vocab_size, z_loss, compiled=model.loss_is_compiled
        )
        return loss, loss.detach()[None]


def loss_of(training: TrainingConfig) -> Loss:
    return PairLoss(training.dpo) if training.objective == "dpo" else TokenLoss(training.z_loss)


def loss_sum(model: Llama, batch: Batch, precision: Precision) -> torch.Tensor:
    """The summed loss of the batch's targets in nats, without dropout.

    In a pipeline only the processes with the last stage know it; in the others it is zero, without gradients
    (`trainer.run.step` has them).
    """
    with autocast(precision, batch.tokens.device):
        hidden = model(batch.tokens, batch.documents)
        if not model.has_head:
            return hidden.new_zeros(())
        loss, _ = TokenLoss().sums(model, hidden, batch)
        return loss
