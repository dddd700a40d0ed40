"""Every optimizer with every schedule trains the tiny model to below a stated loss in a stated number of
tokens.

`GROUNDWORK_RESULTS=performance/results pytest tests/trainer/optim/test_learning.py` keeps the table, in
optimizers.json.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.steps import new_session, step
from trainer.config import RunConfig
from trainer.parallel.world import World

ALONE = World(0, 1, torch.device("cpu"))
BATCH_TOKENS, STEPS = 512, 80
# In nats per token; guessing is 5.7, and words drawn at random cannot be foretold below about 1.43.
BELOW = 1.7
RATES = {"adamw": 0.01, "muon": 0.01}
SCHEDULES: dict[str, dict[str, Any]] = {
    "cosine": {"kind": "cosine"},
    "linear": {"kind": "linear"},
    "constant": {"kind": "constant"},
    "wsd, linear": {"kind": "wsd"},
    "wsd, sqrt": {"kind": "wsd", "decay": "sqrt"},
}


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, dict[str, float]]]:
    """Losses by optimizer and schedule; printed, and kept where they are asked for."""
    losses: dict[str, dict[str, float]] = {}
    yield losses
    for kind, row in losses.items():
        print(f"{kind:<12}" + "".join(f"{schedule} {loss:.3f}  " for schedule, loss in row.items()))
    if folder := os.environ.get("GROUNDWORK_RESULTS"):
        what = {"tokens": STEPS * BATCH_TOKENS, "below": BELOW, "nats_per_token": losses}
        Path(folder, "optimizers.json").write_text(json.dumps(what, indent=1) + "\n", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", RATES)
def test_forty_thousand_tokens_bring_the_loss_below(
    settings: dict[str, Any], table: dict[str, dict[str, float]], kind: str, schedule: str
) -> None:
    settings["training"] |= {
        "global_batch_tokens": BATCH_TOKENS,
        "micro_batch_size": 16,
        "max_tokens": STEPS * BATCH_TOKENS,
        "optimizer": {"kind": kind, "lr": RATES[kind], "muon_lr": 0.02},
        "schedule": {"warmup_tokens": 8 * BATCH_TOKENS, **SCHEDULES[schedule]},
    }
    session = new_session(RunConfig.model_validate(settings))
    losses = []
    for number in range(STEPS):
        losses.append(step(session, number).loss)
    last = sum(losses[-5:]) / 5
    table.setdefault(kind, {})[schedule] = round(last, 3)
    assert losses[0] > 5.6 and last < BELOW
