"""What cannot be split like this is refused with the reason before anything starts."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import ParallelConfig, RunConfig
from trainer.errors import TrainerError
from trainer.parallel.world import join


@pytest.mark.parametrize(
    ("parallel", "says"),
    [
        ({"dp_shard": 2}, r"a multiple of dp_shard 2 x tp 1 = 2 processes, and there are 3: start `torchrun --nproc-per-node=2 "),
        ({"dp_replicate": 2, "dp_shard": 2, "tp": 2}, r"dp_replicate 2 x dp_shard 2 x tp 2 = 8 processes, and there are 3"),
    ],
)
def test_sizes_must_multiply_to_the_processes(monkeypatch: pytest.MonkeyPatch, parallel: dict[str, int], says: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(TrainerError, match=says):
        join(ParallelConfig.model_validate(parallel))


@pytest.mark.parametrize(
    ("training", "says"),
    [
        ({"parallel": {"tp": 4}}, r"parallel\.tp 4 must divide .*, and n_kv_heads is 2"),
        ({"parallel": {"dp_shard": 2}, "optimizer": {"kind": "muon"}}, r"optimizer\.kind muon .*it orthogonalises whole matrices.*choose adamw"),
        ({"parallel": {"tp": 2}, "optimizer": {"kind": "adamw"}, "dropout": 0.1}, r"does not split dropout"),
    ],
)
def test_a_run_that_cannot_be_split_says_why(settings: dict[str, Any], training: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RunConfig.model_validate({**settings, "training": {**settings["training"], **training}})
