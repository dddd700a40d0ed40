"""A run that learned nothing does not end as if it were complete, and what is broken is not saved."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.checkpoint import publish
from trainer.config import RunConfig, load_to_train
from trainer.run.loop import DONE, run
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


@pytest.mark.parametrize("optimizer", ["all", "newest"])
def test_weights_that_are_not_finite_take_no_good_checkpoint_with_them(
    settings: dict[str, Any], optimizer: str
) -> None:
    settings["training"] |= {
        "checkpoint": {"every_tokens": 256, "keep_last": 1, "optimizer": optimizer},
        "optimizer": {"kind": "adamw", "lr": 1e-3},
        "schedule": {"kind": "constant", "warmup_tokens": 0},
        "max_tokens": 2 * 256,
    }
    assert run(RunConfig.model_validate(settings)) == DONE
    settings["training"] |= {"max_tokens": 6 * 256, "optimizer": {"kind": "adamw", "lr": 1e30}}
    with pytest.raises(TrainerError, match=r"norm of the weights is (nan|inf) after step 3.* is not saved"):
        run(RunConfig.model_validate(settings), allow_changes=True)
    settings["training"]["optimizer"]["lr"] = 1e-3
    assert run(RunConfig.model_validate(settings), allow_changes=True) == DONE


@pytest.mark.parametrize("kind", ["adamw", "muon", "adafactor", "lion", "sophia"])
def test_the_largest_learning_rate_ends_in_a_sentence_with_every_optimizer(
    settings: dict[str, Any], kind: str
) -> None:
    rates = {"lr": 1e30} | ({"muon_lr": 1e30} if kind == "muon" else {})
    groups = [{"pattern": "*", "lr_multiplier": 1e4}]
    settings["training"] |= {
        "optimizer": {"kind": kind, "groups": groups, **rates},
        "schedule": {"kind": "constant", "warmup_tokens": 0},
        "stages": [{"name": "all", "lr_multiplier": 1e4}],
        "max_tokens": 2 * 256,
    }
    with pytest.raises(TrainerError, match="not finite"):
        run(RunConfig.model_validate(settings))
    for place, setting in ((rates, "lr"), (groups[0], "lr_multiplier")):
        kept = place[setting]
        place[setting] = 1e300
        settings["training"]["optimizer"] = {"kind": kind, "groups": groups, **rates}
        with pytest.raises(ValueError, match="less than or equal to"):
            RunConfig.model_validate(settings)
        place[setting] = kept


def test_a_run_or_stage_of_one_step_at_the_rate_0_is_refused(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    path, stages = tmp_path / "config.yaml", [{"name": "most", "share": 0.5}, {"name": "last"}]
    settings["training"]["schedule"] = {"kind": "wsd"}
    for length, told in (
        ({"max_tokens": 256}, "training.max_tokens is one step"),
        ({"max_tokens": 512, "stages": stages}, "training.stages: 'last' is one step"),
    ):
        settings["training"] |= length
        path.write_text(yaml.safe_dump(settings))
        with pytest.raises(TrainerError, match=told):
            load_to_train(path)
        assert load_to_train(path, ["training.schedule.min_lr_ratio=0.1"])
