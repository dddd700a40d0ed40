"""Every optimizer with every schedule trains the tiny model to below a stated loss in a stated number of
tokens.
"""

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from tests.trainer.steps import new_session, step
from trainer.config.optimizer import OptimizerKind

BATCH_TOKENS, STEPS = 512, 80
# In nats per token; guessing is 5.7, and words drawn at random cannot be foretold below about 1.43.
BELOW = 1.7
OTHERS = {"python": {"python": "torch.optim:NAdam"}}
RATES = dict.fromkeys(get_args(OptimizerKind), 0.01) | {"adafactor": 0.02, "lion": 0.006}
SCHEDULES: dict[str, dict[str, Any]] = {
    "cosine": {"kind": "cosine"},
    "linear": {"kind": "linear"},
    "constant": {"kind": "constant"},
    "wsd, linear": {"kind": "wsd"},
    "wsd, sqrt": {"kind": "wsd", "decay": "sqrt"},
}


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, dict[str, float]]]:
    """Losses by optimizer and schedule, printed."""
    losses: dict[str, dict[str, float]] = {}
    yield losses
    for kind, row in losses.items():
        print(f"{kind:<12}" + "".join(f"{schedule} {loss:.3f}  " for schedule, loss in row.items()))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", RATES)
def test_forty_thousand_tokens_bring_the_loss_below(
    settings: dict[str, Any], table: dict[str, dict[str, float]], kind: str, schedule: str
) -> None:
    if kind == "adamw_8bit":
        pytest.importorskip("torchao", reason="the extra `torchao` is not installed")
    settings["training"] |= {
        "global_batch_tokens": BATCH_TOKENS,
        "micro_batch_size": 16,
        "max_tokens": STEPS * BATCH_TOKENS,
        "optimizer": {"kind": kind, "lr": RATES[kind], "muon_lr": 0.02, **OTHERS.get(kind, {})},
        "schedule": {"warmup_tokens": 8 * BATCH_TOKENS, **SCHEDULES[schedule]},
    }
    session = new_session(settings)
    losses = [step(session, number).loss for number in range(STEPS)]
    last = sum(losses[-5:]) / 5
    table.setdefault(kind, {})[schedule] = round(last, 3)
    assert losses[0] > 5.6 and last < BELOW
