"""What cannot be split like this is refused with the reason before anything starts."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from trainer.config import ParallelConfig, RunConfig
from trainer.parallel.world import World, join
from trainer.run.fit import preflight
from trainer.system.errors import TrainerError


def test_sizes_must_multiply_to_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    says = r"a multiple of dp_shard 2 x tp 1 x pp 1 = 2 processes, but there are 3: start `torchrun --nproc"
    with pytest.raises(TrainerError, match=says):
        join(ParallelConfig(dp_shard=2))


def test_a_process_without_a_gpu_of_its_own_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        TrainerError, match=r"process 1 .* has no GPU: PyTorch sees 1 GPU .* at most 1 process on"
    ):
        join(ParallelConfig())


@pytest.mark.parametrize(
    ("training", "says"),
    [
        (
            {"parallel": {"tp": 4}},
            r"parallel\.tp 4 does not divide n_kv_heads 2: choose a tp that divides n_heads",
        ),
        (
            {"parallel": {"dp_shard": 2}, "optimizer": {"kind": "adafactor"}},
            r"optimizer\.kind adafactor .*means over entire rows.*choose adamw, muon, lion or sophia",
        ),
        (
            {"parallel": {"tp": 2}, "optimizer": {"kind": "adamw_8bit"}},
            r"optimizer\.kind adamw_8bit .*quantized in blocks.*choose adamw",
        ),
        (
            {"parallel": {"pp": 2}, "optimizer": {"kind": "python", "python": "torch.optim:NAdam"}},
            r"optimizer\.kind python cannot update a split model .*leave parallel\.dp_shard, tp and pp at 1",
        ),
        ({"parallel": {"tp": 2}, "optimizer": {"kind": "adamw"}, "dropout": 0.1}, r"cannot split dropout"),
        ({"parallel": {"pp": 3}}, r"parallel\.pp 3 is more than n_layers 2, .*lower pp"),
        (
            {"parallel": {"pp": 2}, "model": {"size": "tiny", "tie_embeddings": True}},
            r"the embedding and the head on different .* set model\.tie_embeddings to false",
        ),
    ],
)
def test_a_run_that_cannot_be_split_says_why(
    settings: dict[str, Any], training: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        RunConfig.model_validate({**settings, "training": {**settings["training"], **training}})


def test_a_pipeline_with_too_few_micro_batches_is_refused(settings: dict[str, Any]) -> None:
    batch = settings["training"]["micro_batch_size"] * settings["training"]["seq_len"]
    settings["training"] |= {"global_batch_tokens": batch, "max_tokens": 2 * batch, "schedule": {}}
    settings["training"] |= {"parallel": {"pp": 2}, "optimizer": {"kind": "adamw"}}
    with pytest.raises(TrainerError, match=r"parallel\.pp 2 needs at least 2 .* there are 1\."):
        preflight.check(RunConfig.model_validate(settings), World(0, 1, torch.device("cpu")))


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "x"}, "the environment has RANK=x, WORLD_SIZE=1, .* ranks are whole numbers below"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE=-2, .* ranks are whole numbers below"),
        ({"RANK": "3"}, "RANK=3, .* ranks are whole numbers below the number of processes"),
        ({"WORLD_SIZE": "2"}, r"\('RANK' is not set\)"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR expected, but not set"),
        (
            {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
            "the processes do not meet at MASTER_ADDR and MASTER_PORT",
        ),
    ],
)
def test_an_environment_that_no_torchrun_has_made_is_said(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], says: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TrainerError, match=says) as caught:
        join(ParallelConfig(timeout_seconds=1))
    assert type(caught.value) is TrainerError
