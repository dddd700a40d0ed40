"""What the settings of a run come to on its machine, decided before anything of it is built."""

import logging
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from trainer.config import RunConfig, TrainingConfig, run_identity
from trainer.config.model import READ_HERE_ONLY
from trainer.config.peft import check_adaptable
from trainer.data.loader import TrainingData
from trainer.hf import Pretrained
from trainer.model.attention import Backend, choose_backend, flash, masks_documents
from trainer.model.precision import AUTOCAST, Precision, resolve_precision
from trainer.parallel.world import World
from trainer.run.fit import compiler, preflight

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Plan:
    """A run as it will be trained. `identity` is what decides its weights; `pretrained` is what they start
    from, if they do not start at random.
    """

    config: RunConfig
    precision: Precision
    attention: Backend
    compiled: bool
    identity: dict[str, Any]
    data: TrainingData
    pretrained: Pretrained | None

    @property
    def training(self) -> TrainingConfig:
        return self.config.training

    def with_micro_batch(self, windows: int) -> Self:
        return replace(self, config=self.config.with_training(micro_batch_size=windows))


def resolve(config: RunConfig, world: World) -> Plan:
    """Checks what can be checked before the first step (TrainerError), and decides what `auto` stands for but
    for the micro-batch (`trainer.run.fit.micro_batch`). A collective.
    """
    # The identity holds what `auto` means here, so that the run stays the same on another machine.
    masked = masks_documents(config.training.document_masking, world.device)
    config = config.with_training(document_masking=masked)
    training = config.training
    contents = world.from_main(lambda: preflight.check(config, world))
    with world.together():
        data = TrainingData(config.data, training, config.run_dir / "packing")
    if training.threads:
        torch.set_num_threads(training.threads)
    if world.is_main and training.model.attention_sinks:
        log.warning(READ_HERE_ONLY)
    precision = resolve_precision(training.precision, world.device)
    attention = attention_for(training, precision, world)
    pretrained = None
    if training.pretrained:
        with world.together():
            pretrained = Pretrained.find(
                training.pretrained, training.model, config.data, training.learns_tokens
            )
            if training.lora:
                check_adaptable(pretrained.directory)
    identity = run_identity(config, precision, contents, pretrained.sha256 if pretrained else None)
    compiled = compiler.compiles(training, world.device)
    return Plan(config, precision, attention, compiled, identity, data, pretrained)


def attention_for(training: TrainingConfig, precision: Precision, world: World) -> Backend:
    """The backend that the main process chooses, ready for use in every process. A collective."""
    model, dtype, masked = training.model, AUTOCAST.get(precision, torch.float32), training.document_masking
    wanted, length = training.attention, training.seq_len
    chosen = world.from_main(
        lambda: choose_backend(wanted, world.device, dtype, model=model, seq_len=length, masked=bool(masked))
    )
    if chosen == "flash":
        kernels = flash.activate(world.device, model.head_dim)
        if world.is_main:
            log.info("attention flash runs with the kernels of %s", kernels)
    return chosen
