"""One optimizer step, from a global batch to new weights."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch.optim import Optimizer

from trainer.config import TrainingConfig
from trainer.model.dropout import sample_keys
from trainer.model.llama import Llama
from trainer.model.precision import LossScale, autocast
from trainer.optim.build import set_learning_rates
from trainer.optim.second_pass import draws, wanting
from trainer.parallel.dtensor import local_tensor
from trainer.parallel.pipeline_parallel import PipelineModel
from trainer.parallel.world import World
from trainer.run.batch import Batch
from trainer.run.gradient_graph import GradientGraphs
from trainer.run.learned_tokens import Answers
from trainer.run.objectives import loss_of
from trainer.run.spikes import SpikeDetector
from trainer.system.errors import TrainerError


@dataclass
class StepContext:
    """How steps are taken, and the number of the next one, `step` (from 0).

    `bot_id` masks documents apart; None lets them attend to each other. Each step updates `loss_scale` and
    `spikes`. `answers` are as `Batch` takes them. `reference` is that of preferences: called with a step, it
    returns the log-probabilities for this process's batch of that step. With `graphs` the micro-batches of a
    step are repeated as CUDA graphs.
    """

    step: int
    training: TrainingConfig
    bot_id: int | None
    world: World
    loss_scale: LossScale
    spikes: SpikeDetector
    answers: Answers | None = None
    reference: Callable[[int], torch.Tensor] | None = None
    graphs: GradientGraphs | None = None

    def first_sample(self, rows: int) -> int:
        """The first of this process's `rows` samples of the step, by its number in the run."""
        return self.training.curriculum.samples(self.step) + self.world.data_rank * rows

    def batch(self, windows: torch.Tensor) -> Batch:
        """The batch of this process's windows [rows, seq_len + 1]."""
        keys = None
        if self.training.dropout:
            keys = sample_keys(
                self.training.seed, first_sample=self.first_sample(len(windows)), samples=len(windows)
            )
            keys = keys.to(windows.device)
        reference = None
        if self.reference is not None:
            reference = self.reference(self.step)[: len(windows)].to(windows.device)
        return Batch.of(windows, self.bot_id, dropout_keys=keys, answers=self.answers, reference=reference)

    def second_pass(self, batch: Batch) -> Batch:
        """The batch for a second pass. Its targets are drawn by the model, and only the seed and the samples
        decide which.
        """
        uniform = draws(
            self.training.seed,
            first_sample=self.first_sample(len(batch)),
            samples=len(batch),
            length=batch.seq_len,
        )
        return replace(batch, draws=uniform.to(batch.tokens.device))


@dataclass(frozen=True)
class StepResult:
    """What a step did. `loss` is in nats per predicted token of the global batch, or per pair. `grad_norm` is
    the norm before clipping, and `lr_factor` is what the learning rates were multiplied by. `preferences` has
    the metrics of the loss, if there are any.

    `skipped` says that the batch was consumed without an update, because gradients overflowed in fp16 or
    because training.spikes skips a `spike`.
    """

    loss: float
    grad_norm: float
    lr_factor: float
    skipped: bool
    spike: bool
    preferences: dict[str, float]


class NotFiniteError(TrainerError):
    """The loss or the gradient norm of step `step` (from 1) is NaN or infinite. The weights are unchanged."""

    def __init__(self, step: int, loss: float, grad_norm: float) -> None:
        super().__init__(f"step {step}: loss {loss}, gradient norm {grad_norm}; the weights were not changed")
        self.step, self.loss, self.grad_norm = step, loss, grad_norm


def train_step(
    model: Llama, optimizers: list[Optimizer], windows: torch.Tensor, context: StepContext
) -> StepResult:
    """Takes one step on this process's windows [rows, seq_len + 1].

    Raises NotFiniteError before the weights change.
    """
    training, world, loss_scale = context.training, context.world, context.loss_scale
    batch = context.batch(windows)
    # In a batch without an answer nothing is learned.
    predicted = world.sum(batch.predicted).clamp(min=1)

    for reader in wanting(optimizers, context.step):
        _fill_gradients(model, context.second_pass(batch), context, predicted)
        if _clipped_norm(model, None, world).isfinite():
            reader.read_second_pass(predicted)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)

    means = _fill_gradients(model, batch, context, predicted)
    norm = _clipped_norm(model, training.optimizer.max_grad_norm, world)
    # Read together: on a GPU each read waits for all that was launched.
    loss, *metrics, grad_norm = torch.cat([means, norm.double()[None]]).tolist()
    finite = math.isfinite(loss) and math.isfinite(grad_norm)
    if not finite and loss_scale.value <= 1:  # a smaller scale could not make them finite
        raise NotFiniteError(context.step + 1, loss, grad_norm)
    loss_scale.adapt(finite)
    spike = finite and context.spikes.is_spike(loss, grad_norm)
    taken = finite and not (spike and training.spikes.action == "skip")

    factor = 0.0
    if taken:
        curriculum, updates = training.curriculum, context.step + 1 - loss_scale.skipped_steps
        factor = curriculum.stage(context.step).lr_factor(curriculum.tokens(updates))
        set_learning_rates(optimizers, factor)
    for optimizer in optimizers:
        if taken:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    preferences = dict(zip(loss_of(training).metrics, metrics, strict=True))
    return StepResult(loss, grad_norm, factor, skipped=not taken, spike=spike, preferences=preferences)


def _fill_gradients(
    model: Llama, batch: Batch, context: StepContext, predicted: torch.Tensor
) -> torch.Tensor:
    """Computes the gradients of the mean loss over the `predicted` targets or pairs of all processes. Returns
    the means of the loss and of its metrics. Neither is scaled any more.
    """
    world, scale = context.world, context.loss_scale.value
    # Gradients are summed over micro-batches and processes, so each term is divided by the global number of
    # targets or pairs, once.
    total = add_gradients(model, batch, context, predicted)
    world.sum_gradients(model)
    if scale != 1:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= scale
    return world.sum(world.from_last_stage(total)) / predicted


def add_gradients(
    model: Llama, batch: Batch, context: StepContext, divisor: torch.Tensor | None = None
) -> torch.Tensor:
    """Adds the gradients of the scaled, summed loss over `divisor`, or 1, micro-batch by micro-batch. Returns
    the sums of the loss, not scaled, and of its metrics, float64 [1 + metrics].
    """
    if divisor is None:
        divisor = torch.ones((), device=batch.tokens.device)
    training, factor = context.training, context.loss_scale.value * context.world.loss_factor
    loss = loss_of(training)
    total = torch.zeros(1 + len(loss.metrics), dtype=torch.float64, device=batch.tokens.device)

    def sums(hidden: torch.Tensor, micro_batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        with autocast(model.precision, hidden.device):
            return loss.sums(model, hidden, micro_batch)

    def of_stages(hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        summed, found = sums(hidden, batch.rows(rows))
        total.add_(found)
        return summed * factor / divisor

    def work(micro_batch: Batch, divisor: torch.Tensor) -> torch.Tensor:
        # The hidden states have no name here, so that the backward pass begins without them.
        summed, found = sums(_hidden_states(model, micro_batch), micro_batch)
        (summed * factor / divisor).backward()
        return found

    micro_batches = math.ceil(len(batch) * batch.seq_len / training.micro_batch_tokens)
    if isinstance(model, PipelineModel):
        model.add_gradients(batch.tokens, batch.documents, batch.dropout_keys, micro_batches, of_stages)
        return total
    size = len(batch) // micro_batches
    for start in range(0, len(batch), size):
        micro_batch = batch.rows(slice(start, start + size))
        # A second pass has tensors of its own, and is too rare for a graph.
        if context.graphs is None or batch.draws is not None:
            total.add_(work(micro_batch, divisor))
        else:
            total.add_(context.graphs.sums(work, micro_batch, divisor))
    return total


def _hidden_states(model: Llama, batch: Batch) -> torch.Tensor:
    with autocast(model.precision, batch.tokens.device):
        return model(batch.tokens, batch.documents, dropout_keys=batch.dropout_keys)


def _clipped_norm(model: Llama, limit: float | None, world: World) -> torch.Tensor:
    """The norm of all gradients, which are then scaled down to `limit` if they exceed it."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = world.norm(gradients)
    if limit is not None:
        torch._foreach_mul_(
            [local_tensor(gradient) for gradient in gradients], (limit / (norm + 1e-6)).clamp(max=1.0)
        )
    return norm
