"""Single steps of a session, without what Session does around them."""

from dataclasses import replace

import torch

from trainer.run.session import Session
from trainer.run.step import StepResult, train_step


def step(session: Session, number: int) -> StepResult:
    """Takes step `number` (from 0) on the windows that belong to it."""
    windows = torch.from_numpy(session.data.batch(number, 0, 1))
    return train_step(session.model, session.optimizers, windows, replace(session.context, step=number))
