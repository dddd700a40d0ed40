"""One optimizer step, from a global batch to new weights."""

import math
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from trainer.config import TrainingConfig
from trainer.model.attention import document_numbers
from trainer.model.dropout import sample_keys
from trainer.model.llama import Llama
from trainer.model.loss import IGNORED, summed_cross_entropy
from trainer.model.precision import LossScale, Precision, autocast
from trainer.optim.build import set_learning_rates
from trainer.optim.lr_schedule import lr_factor
from trainer.optim.sophia import SophiaG, draw_tokens, draws
from trainer.parallel.dtensor import local_tensor
from trainer.parallel.pipeline_parallel import PipelineModel
from trainer.parallel.world import World
from trainer.run.spikes import SpikeDetector
from trainer.system.errors import TrainerError


@dataclass(frozen=True)
class StepResult:
    """`loss` in nats per predicted token of the global batch; `grad_norm` before clipping; `lr_factor` that
    the learning rates were multiplied by.

    `skipped`: the batch is consumed, but the weights stay where they were: gradients overflowed in fp16, or
    training.spikes says so of a `spike`.
    """

    loss: float
    grad_norm: float
    lr_factor: float
    skipped: bool = False
    spike: bool = False


class NotFiniteError(TrainerError):
    """The loss or the gradient of step `step` (from 1) is not finite; nothing has changed."""

    def __init__(self, step: int, loss: float, grad_norm: float) -> None:
        super().__init__(f"step {step}: loss {loss}, gradient norm {grad_norm}; the weights were not changed")
        self.step, self.loss, self.grad_norm = step, loss, grad_norm


def loss_sum(
    model: Llama,
    windows: torch.Tensor,
    precision: Precision,
    bot_id: int | None,
    z_loss: float = 0.0,
    uniform: torch.Tensor | None = None,
    dropout_keys: torch.Tensor | None = None,
) -> torch.Tensor:
    """Summed loss in nats of predicting tokens 1.. of each window [batch, seq_len + 1] int64, as
    trainer.data.windows describes them.

    Of a pipeline only the processes with the last stage know it; in others it is zero, and none has gradients
    of it (`add_gradients`).

    `bot_id` masks documents apart: one begins at each [BOT], and at each token that is only read. With
    `uniform` [batch, seq_len] the targets are not the text's but the model's own, drawn with these numbers.
    `dropout_keys` are those of the windows' samples.
    """
    tokens, targets, documents = _read(windows, bot_id)
    with autocast(precision, windows.device):
        hidden = model(tokens, documents, dropout_keys=dropout_keys)
        if isinstance(model, PipelineModel) and not model.has_head:
            return hidden.new_zeros(())
        return _loss_of(model, hidden, targets, z_loss, uniform)


def _read(
    windows: torch.Tensor, bot_id: int | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """What the model reads of windows, what it is to predict, and the documents that are masked apart, each
    [batch, seq_len].
    """
    read, targets = windows[:, :-1], windows[:, 1:]
    tokens, targets = torch.where(read < 0, ~read, read), torch.where(targets < 0, IGNORED, targets)
    return (
        tokens,
        targets,
        None if bot_id is None else document_numbers(torch.where(read < 0, bot_id, read), bot_id),
    )


def _loss_of(
    model: Llama, hidden: torch.Tensor, targets: torch.Tensor, z_loss: float, uniform: torch.Tensor | None
) -> torch.Tensor:
    hidden, soft_cap = hidden.flatten(0, 1), model.config.logit_soft_cap
    if uniform is not None:
        drawn = draw_tokens(hidden, model.lm_head.weight, uniform.flatten(), model.vocab_size, soft_cap)
        targets = torch.where(targets == IGNORED, IGNORED, drawn.view_as(targets))
    return summed_cross_entropy(
        hidden, model.lm_head.weight, targets.flatten(), model.vocab_size, z_loss, soft_cap
    )


def train_step(
    model: Llama,
    optimizers: list[Optimizer],
    windows: torch.Tensor,
    step: int,
    training: TrainingConfig,
    precision: Precision,
    bot_id: int | None,
    world: World,
    loss_scale: LossScale | None = None,
    spikes: SpikeDetector | None = None,
) -> StepResult:
    """Step `step` (from 0) on this process's windows [rows, seq_len + 1]. NotFiniteError before the
    weights change.

    `loss_scale` is fp16's, kept from step to step, and so is what `spikes` knows.
    """
    loss_scale = loss_scale or LossScale.of(precision)
    predicted = world.sum((windows[:, 1:] >= 0).sum())
    curriculum = training.curriculum
    first_sample = curriculum.samples(step) + world.data_rank * len(windows)
    dropout_keys = (
        sample_keys(training.seed, first_sample, len(windows)).to(windows.device)
        if training.dropout
        else None
    )

    for optimizer in optimizers:
        if isinstance(optimizer, SophiaG) and step % optimizer.interval == 0:
            uniform = draws(training.seed, first_sample, len(windows), windows.shape[1] - 1).to(
                windows.device
            )
            _gradients(
                model,
                windows,
                predicted,
                training,
                precision,
                bot_id,
                world,
                loss_scale.value,
                dropout_keys,
                uniform,
            )
            if _clipped_norm(model, None, world) < math.inf:
                optimizer.update_curvature(predicted)
            optimizer.zero_grad(set_to_none=True)

    loss = _gradients(
        model, windows, predicted, training, precision, bot_id, world, loss_scale.value, dropout_keys
    )
    grad_norm = _clipped_norm(model, training.optimizer.max_grad_norm, world)
    finite = math.isfinite(loss) and math.isfinite(grad_norm)
    if not finite and not loss_scale.can_shrink:
        raise NotFiniteError(step + 1, loss, grad_norm)
    loss_scale.adapt(finite)
    spike = finite and spikes is not None and spikes.is_spike(loss, grad_norm)
    taken = finite and not (spike and training.spikes.action != "log")

    factor = (
        lr_factor(curriculum.stage(step), curriculum.tokens(step + 1 - loss_scale.skipped_steps))
        if taken
        else 0.0
    )
    if taken:
        set_learning_rates(optimizers, factor)
    for optimizer in optimizers:
        if taken:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return StepResult(loss, grad_norm, factor, skipped=not taken, spike=spike)


def _gradients(
    model: Llama,
    windows: torch.Tensor,
    predicted: torch.Tensor,
    training: TrainingConfig,
    precision: Precision,
    bot_id: int | None,
    world: World,
    scale: float,
    dropout_keys: torch.Tensor | None,
    uniform: torch.Tensor | None = None,
) -> float:
    """Fills the gradients of the mean loss over the `predicted` tokens of all processes, and returns that
    loss. `scale` is gone from both.
    """
    z_loss = training.z_loss if uniform is None else 0.0
    micro_batch_size = training.micro_batch_tokens // (windows.shape[1] - 1)
    # Gradients are summed over micro-batches and processes, so each term is divided by the global number of
    # targets, once.
    total = add_gradients(
        model,
        windows,
        micro_batch_size,
        precision,
        bot_id,
        scale * world.loss_factor,
        predicted,
        z_loss,
        uniform,
        dropout_keys,
    )
    world.sum_gradients(model)
    if scale != 1:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= scale
    return (world.sum(world.from_last_stage(total)) / predicted).item()


def add_gradients(
    model: Llama,
    windows: torch.Tensor,
    micro_batch_size: int,
    precision: Precision,
    bot_id: int | None,
    factor: float = 1.0,
    divisor: torch.Tensor | float = 1.0,
    z_loss: float = 0.0,
    uniform: torch.Tensor | None = None,
    dropout_keys: torch.Tensor | None = None,
) -> torch.Tensor:
    """Adds the gradients of `loss_sum` times factor / divisor, and returns that sum in float64, over
    micro-batches of so many windows.
    """
    total = torch.zeros((), dtype=torch.float64, device=windows.device)
    if isinstance(model, PipelineModel):
        tokens, targets, documents = _read(windows, bot_id)

        def micro_loss_of(hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            with autocast(precision, windows.device):
                micro_loss = _loss_of(
                    model, hidden, targets[rows], z_loss, None if uniform is None else uniform[rows]
                )
            total.add_(micro_loss.detach())
            return micro_loss * factor / divisor

        model.add_gradients(tokens, documents, dropout_keys, len(windows) // micro_batch_size, micro_loss_of)
        return total
    for at in range(0, len(windows), micro_batch_size):
        rows = slice(at, at + micro_batch_size)
        numbers, keys = (None if all_rows is None else all_rows[rows] for all_rows in (uniform, dropout_keys))
        micro_loss = loss_sum(model, windows[rows], precision, bot_id, z_loss, numbers, keys)
        (micro_loss * factor / divisor).backward()
        total += micro_loss.detach()
    return total


def _clipped_norm(model: Llama, limit: float | None, world: World) -> float:
    """The norm of all gradients, which are then scaled down to `limit` if they are longer."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = world.norm(gradients)
    if limit is not None:
        torch._foreach_mul_(
            [local_tensor(gradient) for gradient in gradients], (limit / (norm + 1e-6)).clamp(max=1.0)
        )
    return norm.item()
