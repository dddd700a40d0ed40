"""Sessions without a run around them, and single steps of them."""

from dataclasses import replace
from typing import Any

import torch

from trainer.config import RunConfig
from trainer.parallel.world import World
from trainer.run.resolve import resolve
from trainer.run.session import Session, build_session
from trainer.run.step import StepResult, train_step

ALONE = World(0, 1, torch.device("cpu"))


def new_session(config: RunConfig | dict[str, Any], world: World = ALONE) -> Session:
    """A session at step 0."""
    config = RunConfig.model_validate(config)
    return build_session(resolve(config, world), world)


def step(session: Session, number: int) -> StepResult:
    """Takes step `number` (from 0) on the windows that belong to it."""
    windows = torch.from_numpy(session.plan.data.batch(number, 0, 1))
    return train_step(session.model, session.optimizers, windows, replace(session.context, step=number))
