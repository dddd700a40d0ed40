"""A run that learnt nothing does not end as if it were complete."""

from typing import Any

import pytest

from trainer.checkpoint import publish
from trainer.config import RunConfig
from trainer.run.loop import run
from trainer.system.errors import TrainerError


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"precision": "fp16", "init": {"std": 1e3, "zero_output": False}},
            "the gradients of all 4 steps overflowed, so no weight was updated",
        ),
        (
            {
                "optimizer": {"kind": "adamw", "lr": 1e30},
                "schedule": {"kind": "cosine", "warmup_tokens": 0},
                "max_tokens": 256,
            },
            "the validation loss is (nan|inf)",
        ),
    ],
    ids=["nothing updated", "not finite"],
)
def test_a_run_without_an_update_or_with_an_endless_validation_loss_is_not_complete(
    settings: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    settings["training"] |= {"max_tokens": 4 * 256, **changes}
    config = RunConfig.model_validate(settings)
    with pytest.raises(TrainerError, match=rf"{said}, and the last step is not saved: train in bf16"):
        run(config)
    steps = config.training.max_tokens // 256
    checkpoints = config.run_dir / "checkpoints"
    assert steps not in [publish.step_of(one) for one in publish.existing(checkpoints)]
