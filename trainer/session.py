"""A run in memory: the model, its optimizers, its data, and how many steps are done."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from trainer import preflight
from trainer.attention import Backend, choose
from trainer.checkpoint import state, store
from trainer.config import RunConfig, TrainingConfig, meaning
from trainer.errors import TrainerError
from trainer.loader import TrainingData
from trainer.model import Llama
from trainer.optim.build import build
from trainer.parallel.world import World
from trainer.precision import LossScale, Precision, resolve

log = logging.getLogger("trainer")


@dataclass
class Session:
    """`step` steps are done; `loss` is the last one's, `evaluation` that of the current step if there was one."""

    config: RunConfig
    meaning: dict[str, Any]
    world: World
    precision: Precision
    attention: Backend
    data: TrainingData
    model: Llama
    optimizers: list[Optimizer]
    loss_scale: LossScale
    step: int = 0
    loss: float = float("nan")
    evaluation: dict[str, Any] | None = None

    @classmethod
    def prepare(cls, config: RunConfig, world: World) -> "Session":
        """Checks everything that can be checked before the first step (TrainerError) and builds the run at step 0."""
        training = config.training
        hashes = preflight.check(config, world.size)
        data = TrainingData(config.data, training, config.run_dir / "packing")
        if world.device.type == "cpu" and training.threads:
            torch.set_num_threads(training.threads)
        attention = choose(training.attention, world.device, training.seq_len)
        model = Llama(training.model, config.data.vocab_size, training.seq_len, attention)
        model.initialise(training.init, training.seed)
        model.to(world.device)
        precision = resolve(training.precision, world.device)
        optimizers, loss_scale = build(model, training.optimizer), LossScale.of(precision)
        return cls(config, meaning(config, hashes), world, precision, attention, data, model, optimizers, loss_scale)

    @property
    def training(self) -> TrainingConfig:
        return self.config.training

    @property
    def tokens(self) -> int:
        return self.step * self.training.global_batch_tokens

    @property
    def is_complete(self) -> bool:
        return self.step == self.training.steps

    @property
    def bot_id(self) -> int | None:
        """What separates documents for attention; None when they may see each other."""
        return self.config.data.bot_id if self.training.document_masking else None

    def is_due(self, every_tokens: int) -> bool:
        """Whether the step just done reached a multiple of `every_tokens`, or the end."""
        before = self.tokens - self.training.global_batch_tokens
        return self.is_complete or self.tokens // every_tokens > before // every_tokens

    def corpus_samples(self, step: int) -> dict[str, int]:
        """Windows taken from each corpus in `step` steps."""
        counts = self.data.order.consumed(step * self.training.global_batch_size)
        return dict(zip(self.data.order.names, counts.tolist(), strict=True))

    def epochs(self) -> dict[str, float]:
        """How often each corpus will have been read at the end of the run."""
        samples = self.corpus_samples(self.training.steps)
        return {name: round(samples[name] / size, 3) for name, size in zip(self.data.order.names, self.data.order.sizes, strict=True)}

    def compile_blocks(self) -> None:
        """Compiles each block where that is wanted and possible; parameter names stay as they are."""
        wanted = self.training.compile
        if wanted == "auto":
            wanted = self.world.device.type == "cuda" or any(map(shutil.which, ("c++", "g++", "clang++")))
        if wanted:
            for block in self.model.model.layers:
                block.compile(fullgraph=True, dynamic=False)

    def save(self, checkpoint: Path) -> None:
        """On the main process."""
        samples = self.step * self.training.global_batch_size
        corpus_samples = self.corpus_samples(self.step)
        progress = state.Progress(self.step, self.tokens, samples, corpus_samples, self.loss, self.evaluation, self.loss_scale)
        state.save(checkpoint, self.model, self.optimizers, progress, self.config, self.meaning)

    def resume(self, checkpoints: Path) -> Path | None:
        """Goes to the newest checkpoint that verifies, if any. TrainerError when it is of another run."""
        found = self.world.from_main(self._newest(checkpoints) if self.world.is_main else None)
        if not isinstance(found, Path):
            return None
        saved = state.read_state(found)
        state.restore(found, self.model, self.optimizers)
        self.step, self.loss, self.evaluation = saved["step"], saved["loss"], saved["evaluation"]
        self.loss_scale = LossScale(**saved["loss_scale"])
        return found

    def _newest(self, checkpoints: Path) -> Path | None:
        found, skipped = store.newest_valid(checkpoints)
        for reason in skipped:
            log.warning("skipped a checkpoint: %s", reason)
        if found is not None:
            changed = state.differences(state.read_state(found)["meaning"], self.meaning)
            if changed:
                raise TrainerError(
                    f"{found.parent.parent} holds a run with other settings ({'; '.join(changed)}): restore them, or choose another run_dir"
                )
        return found
