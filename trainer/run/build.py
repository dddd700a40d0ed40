"""A session at step 0, built from a run's plan."""

from pathlib import Path

import torch

from trainer.hf import load_weights
from trainer.model import fp8
from trainer.model.llama import Llama
from trainer.model.precision import LossScale
from trainer.optim.build import build
from trainer.parallel.pipeline_parallel import PipelineModel
from trainer.parallel.world import World
from trainer.run.fit.compiler import compile_blocks
from trainer.run.resolve import Plan
from trainer.run.session import Session
from trainer.system.errors import TrainerError


def build_session(plan: Plan, world: World) -> Session:
    """The run at step 0. Raises TrainerError for weights that no training can start from."""
    model = _model(plan, world)
    if plan.training.document_masking and plan.attention == "flash":
        model.model.most_documents = plan.data.most_documents()
    optimizers = build(model, plan.training.optimizer, model.shapes, world.group)
    if plan.compiled:
        compile_blocks(model, plan.training, world.device)
    return Session(plan, world, model, optimizers, LossScale.of(plan.precision))


def _model(plan: Plan, world: World) -> Llama:
    """The model with its first weights, split over the processes of the `world`."""
    training, pretrained = plan.training, plan.pretrained
    arguments = (
        training.model,
        plan.config.data.vocab_size,
        training.seq_len,
        plan.attention,
        training.activation_checkpointing,
        training.dropout,
        plan.precision,
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
    if plan.precision == "fp8":
        fp8.convert(model.model.layers)
    if world.mesh and training.parallel.splits_model:
        from trainer.parallel.parallelize import split

        split(model, world.mesh, training.parallel, plan.precision)
    return model


def _check_finite(model: Llama, directory: Path) -> None:
    """Raises TrainerError with the first of the loaded tensors that holds NaN or an infinite number."""
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise TrainerError(
                f"{directory}: {name} holds numbers that are NaN or infinite, so no training can start from "
                "it: get these weights again, or take others"
            )
