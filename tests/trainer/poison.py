"""A run of 160 steps that meets a poisoned batch: text of tokens that its corpora do not have."""

from typing import Any

import numpy as np
import pytest

from trainer.config import RunConfig
from trainer.loader import TrainingData

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
    """The samples that make up these batches (from 0) of the undisturbed order hold nothing but one unknown token."""
    sound, data = TrainingData.batch, TrainingData(config.data, config.training, config.run_dir / "packing")
    poisoned = [sound(data, number, 0, 1) for number in batches]

    def batch(self: TrainingData, step: int, rank: int, world_size: int) -> np.ndarray:
        found = sound(self, step, rank, world_size)
        return np.full_like(found, 7) if any(np.array_equal(found, one) for one in poisoned) else found

    monkeypatch.setattr(TrainingData, "batch", batch)
