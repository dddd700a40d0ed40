"""One optimizer step, from a global batch to new weights."""

import math
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from trainer.attention import document_numbers
from trainer.config import TrainingConfig
from trainer.errors import TrainerError
from trainer.loss import IGNORED, summed_cross_entropy
from trainer.model import Llama
from trainer.optim.build import set_learning_rates
from trainer.parallel.world import World
from trainer.precision import Precision, autocast
from trainer.schedule import lr_factor


@dataclass(frozen=True)
class StepResult:
    """`loss` in nats per predicted token of the global batch; `grad_norm` before clipping; `lr_factor` that the learning rates were multiplied by."""

    loss: float
    grad_norm: float
    lr_factor: float


def loss_sum(model: Llama, windows: torch.Tensor, precision: Precision, bot_id: int | None) -> torch.Tensor:
    """Summed loss in nats of predicting tokens 1.. of each window [batch, seq_len + 1] int64, as trainer.windows describes them.

    `bot_id` masks documents apart: one begins at each [BOT], and at each token that is only read.
    """
    read, targets = windows[:, :-1], windows[:, 1:]
    inputs, targets = torch.where(read < 0, ~read, read), torch.where(targets < 0, IGNORED, targets)
    documents = None if bot_id is None else document_numbers(torch.where(read < 0, bot_id, read), bot_id)
    with autocast(precision, windows.device):
        hidden = model(inputs, documents)
        return summed_cross_entropy(hidden.flatten(0, 1), model.lm_head.weight, targets.flatten(), model.vocab_size)


def train_step(
    model: Llama,
    optimizers: list[Optimizer],
    windows: torch.Tensor,
    step: int,
    training: TrainingConfig,
    precision: Precision,
    bot_id: int | None,
    world: World,
) -> StepResult:
    """Step `step` (from 0) on this process's windows [rows, seq_len + 1]. TrainerError, before the weights change, when the loss is not finite."""
    total = torch.zeros((), dtype=torch.float64, device=windows.device)
    predicted = world.sum((windows[:, 1:] >= 0).sum())
    for micro_batch in windows.split(training.micro_batch_size):
        micro_loss = loss_sum(model, micro_batch, precision, bot_id)
        # Gradients are summed over micro-batches and processes, so each term is divided by the global number of targets, once.
        (micro_loss / predicted).backward()
        total += micro_loss.detach()

    world.sum_gradients(model)
    loss = (world.sum(total) / predicted).item()

    limit = math.inf if training.optimizer.max_grad_norm is None else training.optimizer.max_grad_norm
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item()
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise TrainerError(
            f"step {step + 1}: loss {loss}, gradient norm {grad_norm}; the weights were not changed. Lower the learning rate or lengthen "
            "the warmup, or train in fp32; the last checkpoint is intact"
        )

    factor = lr_factor(training.schedule, (step + 1) * training.global_batch_tokens, training.max_tokens)
    set_learning_rates(optimizers, factor)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return StepResult(loss, grad_norm, factor)
