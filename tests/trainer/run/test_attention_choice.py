"""Attention is measured once in a run, and the choice stays. Backends of a CPU stand for those of a GPU; only
the clock is given.
"""

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.runs import history
from trainer.checkpoint import store
from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.parallel.world import World
from trainer.run import attention_choice, build
from trainer.run.attention_choice import Choice, attention_of, settled
from trainer.run.attention_timing import Clock, Layer
from trainer.run.loop import run
from trainer.system.errors import TrainerError

CPU = torch.device("cpu")
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [0] * 12])
LAYER = Layer(2, 12, 4, 2, 8, torch.float32, CPU, DOCUMENTS, 2)


def clock(*taken: float) -> Clock:
    """Runs each candidate, and says that it took the next of these times."""
    left = list(taken)

    def read(once: Callable[[], object], device: torch.device) -> float:
        once()
        return left.pop(0)

    return read


def never(once: Callable[[], object], device: torch.device) -> float:
    raise AssertionError("measured again")


def test_the_fastest_of_those_that_run_is_chosen_and_the_table_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trainer")
    choice = settled(tmp_path / "attention.json", ("math", "sdpa"), LAYER, clock(0.003, 0.002))
    assert choice.backend == "sdpa" and choice.milliseconds == {"math": 3.0, "sdpa": 2.0}
    assert "2 x 12 tokens, 4 heads of 8, 2 of keys, float32, documents apart" in choice.layer
    assert "math 3.000 ms, sdpa 2.000 ms" in caplog.text


def test_a_backend_that_cannot_run_here_is_left_out_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trainer")
    choice = settled(tmp_path / "attention.json", ("flash", "math"), LAYER, clock(0.003))
    assert choice.backend == "math" and choice.kernels is None
    assert "flash cannot run: " in caplog.text
    with pytest.raises(TrainerError, match=r"attention cannot be computed on cpu .* flash cannot run"):
        settled(tmp_path / "attention.json", ("flash",), LAYER, clock())


def test_a_recorded_choice_is_kept_also_on_another_gpu(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "attention.json"
    before = Choice("math", "cpu", "", {"math": 2.0, "sdpa": 3.0}, None)
    path.write_text(before.to_json())
    assert settled(path, ("math", "sdpa"), LAYER, never) == before
    assert not caplog.text
    path.write_text(Choice("math", "NVIDIA A100", "", {"math": 2.0}, None).to_json())
    assert settled(path, ("math", "sdpa"), LAYER, never).backend == "math"
    assert "attention math, which was the fastest on NVIDIA A100, is kept on cpu. Delete" in caplog.text


def test_a_recorded_choice_that_cannot_be_used_any_more_is_measured_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "attention.json"
    path.write_text(Choice("flash", "NVIDIA H100", "", {"flash": 1.0}, "flash-attn-3 3.0.0").to_json())
    assert settled(path, ("math", "sdpa"), LAYER, clock(0.001, 0.002)).backend == "math"
    assert "attention flash, which was the fastest, cannot be used any more" in caplog.text
    path.write_text("{")
    with pytest.raises(TrainerError, match=r"attention\.json: damaged .*Delete it"):
        settled(path, ("math", "sdpa"), LAYER, never)


def test_a_run_measures_once_and_its_resumed_parts_keep_the_choice(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings["training"]["document_masking"] = True
    config = RunConfig.model_validate(settings)
    monkeypatch.setattr(attention_choice, "candidates", lambda *_: ("math", "sdpa"))
    monkeypatch.setattr(build, "attention_of", partial(attention_of, clock=clock(0.002, 0.001)))
    run(config)
    kept = json.loads((config.run_dir / "attention.json").read_text())
    assert kept["backend"] == "sdpa" and kept["gpu"] == "cpu"
    assert kept["layer"] == "4 x 32 tokens, 4 heads of 8, 2 of keys, float32, documents apart"

    whole, last = history(config.run_dir), store.existing(config.run_dir / "checkpoints")[-1]
    last.rename(config.run_dir / "removed")
    monkeypatch.setattr(build, "attention_of", partial(attention_of, clock=never))
    run(config)
    assert history(config.run_dir) == whole
    assert json.loads((config.run_dir / "attention.json").read_text()) == kept


def test_other_processes_take_the_choice_of_the_main_one(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config.with_training(document_masking=True)
    data = TrainingData(config.data, config.training, config.run_dir)
    monkeypatch.setattr(attention_choice, "candidates", lambda *_: ("math", "sdpa"))
    told = Choice("sdpa", "cpu", "", {"math": 2.0, "sdpa": 1.0}, None)
    monkeypatch.setattr(World, "from_main", lambda world, make: told)
    found = attention_of(config, "fp32", World(1, 2, CPU), data, never)
    assert found.backend == "sdpa" and found.choice == told


def test_on_a_cpu_nothing_is_measured_or_recorded(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "attention_of", partial(attention_of, clock=never))
    run(RunConfig.model_validate(settings))
    assert not (Path(settings["run_dir"]) / "attention.json").exists()
