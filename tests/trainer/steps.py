"""Sessions without a run around them, and single steps of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
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


def after_each_step(patched: pytest.MonkeyPatch, then: Callable[[Session], None]) -> None:
    """Has something done after each step of the runs to come."""
    take_step = Session.take_step

    def followed(session: Session, windows: torch.Tensor) -> StepResult:
        result = take_step(session, windows)
        then(session)
        return result

    patched.setattr(Session, "take_step", followed)


def step(session: Session, number: int) -> StepResult:
    """Takes step `number` (from 0) on the windows that belong to it."""
    windows = torch.from_numpy(session.plan.data.batch(number, 0, 1))
    return train_step(session.model, session.optimizers, windows, replace(session.context, step=number))
