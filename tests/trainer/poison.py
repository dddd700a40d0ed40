"""A run of 160 steps that meets a poisoned batch: text of tokens that its corpora do not have."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trainer.config import RunConfig
from trainer.data.loader import TrainingData

STEPS, POISONED = 160, 140


def calm(settings: dict[str, Any]) -> None:
    """Makes the run one whose loss has settled by then."""
    settings["training"] |= {
        "seq_len": 16,
        "global_batch_tokens": 128,
        "micro_batch_size": 8,
        "max_tokens": STEPS * 128,
        "optimizer": {"kind": "adamw", "lr": 0.01},
        "schedule": {"kind": "constant", "warmup_tokens": 128},
        "checkpoint": {"every_tokens": 16 * 128, "keep_last": 10},
        "evaluation": {"every_tokens": 400 * 128},
    }


def poison(monkeypatch: pytest.MonkeyPatch, config: RunConfig, *batches: int) -> None:
    """The samples of these batches (from 0) of the undisturbed order hold only one unknown token."""
    monkeypatch.setattr(TrainingData, "batch", _poisoned(config, *batches))


def poison_this_process(config: RunConfig) -> None:
    """As `poison`, of the batch POISONED, for good: for a process that does nothing else."""
    TrainingData.batch = _poisoned(config, POISONED)  # type: ignore[method-assign]


def _poisoned(config: RunConfig, *batches: int) -> Callable[[TrainingData, int, int, int], np.ndarray]:
    sound, data = TrainingData.batch, TrainingData(config.data, config.training, config.run_dir / "packing")

    def batch(self: TrainingData, step: int, rank: int, world_size: int) -> np.ndarray:
        found = sound(self, step, rank, world_size)
        return (
            np.full_like(found, 7)
            if any(np.array_equal(found, sound(data, number, rank, world_size)) for number in batches)
            else found
        )

    return batch
