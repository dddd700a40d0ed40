"""A session at step 0, built from a run's configuration."""

import logging
from pathlib import Path
from typing import Any, cast

import torch

from trainer.config import RunConfig, TrainingConfig, run_identity
from trainer.data.loader import TrainingData
from trainer.hf import Pretrained, load_weights
from trainer.model import fp8
from trainer.model.attention import Backend, choose, flash, masks_documents
from trainer.model.llama import Llama
from trainer.model.precision import AUTOCAST, LossScale, Precision, resolve
from trainer.optim.build import build
from trainer.parallel.pipeline_parallel import PipelineModel
from trainer.parallel.world import World
from trainer.run.fit import preflight
from trainer.run.session import Session
from trainer.system.errors import TrainerError

log = logging.getLogger("trainer")


def build_session(config: RunConfig, world: World) -> Session:
    """Checks what can be checked before the first step (TrainerError), and builds the run at step 0."""
    # The identity holds what `auto` means here, so that the run stays the same on another machine.
    masked = masks_documents(config.training.document_masking, world.device)
    config = config.with_training(document_masking=masked)
    training = config.training
    contents: Any = world.from_main(lambda: preflight.check(config, world))
    data = TrainingData(config.data, training, config.run_dir / "packing")
    if training.threads:
        torch.set_num_threads(training.threads)
    if world.is_main and training.model.not_stock:
        log.warning(
            "no architecture in transformers has %s: the exported model can only be read by this trainer",
            " and ".join(training.model.not_stock),
        )
    precision = resolve(training.precision, world.device)
    attention = _attention(training, precision, world)
    pretrained = None
    if training.pretrained:
        pretrained = Pretrained.find(training.pretrained, training.model, config.data)
    model = _model(config, world, precision, attention, pretrained)
    if masked and attention == "flash":
        model.model.most_documents = data.most_documents()
    identity = run_identity(config, precision, contents, pretrained.sha256 if pretrained else None)
    optimizers = build(model, training.optimizer, model.shapes, world.group)
    return Session(
        config, identity, world, precision, attention, data, model, optimizers, LossScale.of(precision)
    )


def _attention(training: TrainingConfig, precision: Precision, world: World) -> Backend:
    """The backend that the main process chooses, ready for use in every process. A collective."""
    model, dtype, masked = training.model, AUTOCAST.get(precision, torch.float32), training.document_masking
    chosen = world.from_main(
        lambda: choose(
            training.attention,
            world.device,
            dtype,
            training.seq_len,
            model.head_dim,
            bool(masked),
            model.attention_sinks,
        )
    )
    if chosen == "flash":
        kernels = flash.activate(world.device, model.head_dim)
        if world.is_main:
            log.info("attention flash runs with the kernels of %s", kernels)
    return cast(Backend, chosen)


def _model(
    config: RunConfig, world: World, precision: Precision, attention: Backend, pretrained: Pretrained | None
) -> Llama:
    """The model with its first weights, split over the processes of the `world`."""
    training = config.training
    arguments = (
        training.model,
        config.data.vocab_size,
        training.seq_len,
        attention,
        training.activation_checkpointing,
        training.dropout,
        precision,
    )
    with torch.device("meta"):
        model = (
            Llama(*arguments)
            if world.pipeline is None
            else PipelineModel(world.pipeline, training.parallel, *arguments)
        )
    model.materialise(world.device)
    if pretrained:
        load_weights(model, pretrained.directory)
        _check_finite(model, pretrained.directory)
        model.context = max(training.seq_len, pretrained.context)
    else:
        model.initialise(training.init, training.seed)
    if precision == "fp8":
        fp8.convert(model.model.layers)
    if world.mesh and training.parallel.splits_model:
        from trainer.parallel.parallelize import split

        split(model, world.mesh, training.parallel, precision)
    return model


def _check_finite(model: Llama, directory: Path) -> None:
    """Raises TrainerError with the first of the loaded tensors that holds NaN or an infinite number."""
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise TrainerError(
                f"{directory}: {name} holds numbers that are NaN or infinite, so no training can start from "
                "it: get these weights again, or take others"
            )
