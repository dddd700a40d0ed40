"""The loss of preferences: how much more than the reference, the model that the run started from, the model
prefers the chosen answer of a pair to the rejected one.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import logsigmoid

from trainer.config import DpoConfig
from trainer.model.llama import Llama
from trainer.model.loss import log_probabilities, summed_cross_entropy
from trainer.run.batch import Batch

# Means over pairs: the share with a margin above 0; the margin, which is the change against the reference
# of log p(chosen) - log p(rejected); and that of log p(chosen) alone. In nats.
METRICS = ("accuracy", "margin", "chosen_change")


def answer_log_probabilities(
    model: Llama, hidden: torch.Tensor, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log p, fp32 [rows, pairs, 2], and tokens, float64, of each answer, under the caller's autocast."""
    targets = batch.targets.clamp(min=0).flatten()
    found = log_probabilities(hidden.flatten(0, 1), model.lm_head.weight, targets, model.vocab_size)
    found = found.view(batch.targets.shape).where(batch.learned, 0.0)
    return batch.by_answer(found).float(), batch.by_answer(batch.learned)


def pair_sums(
    log_p: torch.Tensor, *, tokens: torch.Tensor, reference: torch.Tensor, dpo: DpoConfig
) -> torch.Tensor:
    """The loss and the METRICS, summed over pairs, [1 + METRICS]: from log p `log_p` and that of the
    `reference`, and the `tokens` of answers, [..., 2] each. A pair without tokens is none.
    """
    change = log_p - reference
    margin = change[..., 0] - change[..., 1]
    loss = -logsigmoid(dpo.beta * margin) - dpo.nll * log_p[..., 0] / tokens[..., 0].clamp(min=1)
    each = torch.stack(
        [loss, (margin > 0).to(loss.dtype), margin.to(loss.dtype), change[..., 0].to(loss.dtype)]
    )
    return each.where(tokens[..., 0] > 0, 0.0).flatten(1).sum(dim=1)


@dataclass(frozen=True)
class PairLoss:
    """The loss of `dpo`, of batches that have a reference."""

    dpo: DpoConfig
    metrics: tuple[str, ...] = METRICS

    def sums(self, model: Llama, hidden: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """As `Loss.sums`. The logits are computed twice: the weight of an answer's tokens in the gradient is
        only known once all of its tokens have been read, and all logits at once would not fit.
        """
        found, tokens = answer_log_probabilities(model, hidden, batch)
        assert batch.reference is not None
        with torch.enable_grad():
            sums = pair_sums(found.requires_grad_(), tokens=tokens, reference=batch.reference, dpo=self.dpo)
        (slopes,) = torch.autograd.grad(sums[0], found)
        slopes = torch.nn.functional.pad(slopes.flatten(1), (0, 1))  # padding's place
        weights = -slopes.gather(1, batch.answers).flatten()
        given = (hidden.flatten(0, 1), model.lm_head.weight, batch.targets.flatten(), model.vocab_size)
        loss = summed_cross_entropy(*given, compiled=model.loss_is_compiled, weights=weights)
        return loss, sums.detach()
