"""What else goes through the stages of a pipeline, beside tokens and gradients."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.parallel.processes import train
from tests.trainer.parallel.test_equal import assert_is_that_of_one
from trainer.config import RunConfig
from trainer.parallel.pipeline_parallel import divided
from trainer.run.loop import run
from trainer.system.errors import TrainerError

ADAMW = {"kind": "adamw", "lr": 1e-3, "eps": 1e-4}
OVERFLOWING = ADAMW | {"lr": 1e30, "groups": [{"pattern": "model.layers.4.mlp.*", "weight_decay": 1e9}]}
OF_A_STAGE = {"pattern": "model.layers.3.*", "lr_multiplier": 0.5}
LONG = {"name": "long", "until_tokens": 1536}
SHORT = {"name": "short", "until_tokens": 3072, "seq_len": 16}
RUNS = {
    "stages of other lengths": (2, {"pp": 2}, {"stages": [LONG, SHORT]}),
    "three processes": (3, {"pp": 3}, {"micro_batch_size": 1, "averaging": {"half_life_tokens": 512}}),
    "copies": (
        4,
        {"pp": 2},
        {"activation_checkpointing": "full", "optimizer": {**ADAMW, "groups": [OF_A_STAGE]}},
    ),
}


@pytest.fixture
def deep(settings: dict[str, Any]) -> dict[str, Any]:
    """A run whose blocks two or three processes cannot share evenly."""
    settings["training"] |= {"micro_batch_size": 2, "optimizer": ADAMW}
    settings["training"]["model"] |= {"n_layers": 5}
    return settings


def test_documents_dropout_and_z_loss_are_those_of_one_process(deep: dict[str, Any], tmp_path: Path) -> None:
    deep["training"] |= {
        "document_masking": True,
        "dropout": 0.1,
        "z_loss": 1e-4,
        "max_tokens": 4 * 256,
        "evaluation": {"every_tokens": 2 * 256, "micro_batch_size": 4},
        "samples": {"prompts": ["the"], "max_new_tokens": 4},
    }
    assert_is_that_of_one(deep, tmp_path, 2, {"pp": 2})


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_stages_is_that_of_one_process(deep: dict[str, Any], tmp_path: Path, name: str) -> None:
    processes, parallel, training = RUNS[name]
    deep["training"] |= training
    assert_is_that_of_one(deep, tmp_path, processes, parallel)


@pytest.mark.slow
def test_what_is_not_finite_is_found_in_any_stage(deep: dict[str, Any], tmp_path: Path) -> None:
    deep["training"]["optimizer"] = OVERFLOWING
    with pytest.raises(TrainerError, match="these weights were not finite before this step"):
        run(RunConfig.model_validate({**deep, "run_dir": str(tmp_path / "one")}))
    assert train(deep, tmp_path / "many", 2, parallel={"pp": 2}) == [1, 1]
    ours, theirs = (
        json.loads(next(tmp_path.glob(f"{name}/not-finite/*.json")).read_text()) for name in ("many", "one")
    )
    told = ("step", "weights_not_finite", "window_losses", "window_losses_in_fp32")
    assert {field: ours[field] for field in told} == {field: theirs[field] for field in told}


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [{"dp_shard": 2}, {"tp": 2}, {"pp": 2}])
def test_what_is_not_finite_in_bf16_on_a_split_model_is_explained_too(
    deep: dict[str, Any], tmp_path: Path, parallel: dict[str, int]
) -> None:
    deep["training"] |= {"precision": "bf16", "optimizer": OVERFLOWING}
    assert train(deep, tmp_path / "many", 2, parallel=parallel) == [1, 1]
    [left] = tmp_path.glob("many/not-finite/*.json")
    told = json.loads(left.read_text())
    assert told["weights_not_finite"] and told["window_losses_in_fp32"] is None
    assert left.with_suffix(".safetensors").exists()


def test_the_stage_with_the_head_has_fewer_blocks_and_none_is_empty() -> None:
    assert divided(8, 2, head=0.0) == [range(4), range(4, 8)]
    assert divided(16, 4, head=2.0) == [range(5), range(5, 9), range(9, 14), range(14, 16)]
    assert divided(4, 4, head=30.0) == [range(1), range(1, 2), range(2, 3), range(3, 4)]
