"""`micro_batch_size: auto` takes what fits, the same in every process, and a run keeps it."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.trainer.parallel.processes import train
from tests.trainer.runs import outcome, printed
from trainer.checkpoint import publish
from trainer.config import RunConfig, TrainingConfig
from trainer.run.fit import micro_batch
from trainer.run.fit.memory import Footprint
from trainer.run.fit.micro_batch import MARGIN, fitting
from trainer.run.loop import DONE, run

GPU, VOCAB = torch.device("cuda"), 32_000

# Tries the micro-batches of a session while the process may take so many more bytes. The first estimate is
# made before, since address space counts, of which a build for CUDA takes hundreds of MB more at first use.
DECIDE = """
import json, resource, sys, torch
from pathlib import Path
from trainer.config import RunConfig
from trainer.parallel.world import World
from trainer.run.fit import micro_batch
from trainer.run.fit.memory import Footprint
from trainer.run.resolve import resolve

world = World(0, 1, torch.device("cpu"))
plan = resolve(RunConfig.model_validate(json.loads(sys.argv[1])), world)
Footprint.measure(plan.training, plan.config.data.vocab_size, 1, world.device)
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + int(sys.argv[2]), resource.RLIM_INFINITY))
print(micro_batch.build_fitting(plan, world, None).training.micro_batch_size)
"""


@pytest.fixture(autouse=True)
def _auto(settings: dict[str, Any]) -> None:
    del settings["training"]["micro_batch_size"]


def training(**changes: Any) -> TrainingConfig:
    every = {key: {"every_tokens": 1} for key in ("checkpoint", "evaluation")}
    wanted = {"model": "171m", "seq_len": 512, "global_batch_tokens": 2**19, "max_tokens": 2**20, **every}
    return TrainingConfig.model_validate(wanted | changes)


def chosen(run_dir: Path) -> int:
    """What a run writes down for itself."""
    size: int = yaml.safe_load((run_dir / "config.yaml").read_text())["training"]["micro_batch_size"]
    return size


def little(config: RunConfig) -> None:
    """Leaves the second process, or a single one, no memory for more than a window."""
    if os.environ.get("RANK", "1") == "1":
        micro_batch.free_memory = lambda device: 0


@pytest.fixture(scope="module")
def footprint() -> Footprint:
    return Footprint.measure(training(), VOCAB, 1, GPU)


@pytest.mark.parametrize(("gigabytes", "processes"), [(16, 1), (24, 1), (24, 8), (40, 3)])
def test_the_largest_micro_batch_that_fits_with_a_margin_is_taken(
    footprint: Footprint, gigabytes: int, processes: int
) -> None:
    footprint = replace(footprint, training=training(global_batch_tokens=3 * 2**17, max_tokens=3 * 2**17))
    windows, room = 3 * 2**17 // 512 // processes, (1 - MARGIN) * gigabytes * 1e9
    size = fitting(footprint, processes, gigabytes * 10**9)[0]
    assert windows % size == 0 and footprint.memory(size).total <= room
    larger = next(one for one in range(size + 1, windows + 1) if windows % one == 0)
    assert footprint.memory(larger).total > room or larger * 512 > 65_536


def test_it_divides_the_batch_of_every_stage_and_leaves_a_pipeline_enough_micro_batches(
    footprint: Footprint,
) -> None:
    stages = [{"name": "first", "share": 0.5, "global_batch_tokens": 6 * 512}, {"name": "last"}]
    staged = training(global_batch_tokens=9 * 512, max_tokens=36 * 512, stages=stages)
    assert fitting(replace(footprint, training=staged), 1, 80 * 10**9) == [3, 1]
    piped = training(global_batch_tokens=8 * 512, max_tokens=8 * 512, parallel={"pp": 4})
    assert fitting(replace(footprint, training=piped), 1, 80 * 10**9) == [2, 1]
    assert fitting(footprint, 1, 10**6) == [1]  # a window is tried on a GPU of any size


def test_it_is_halved_while_memory_runs_out_at_the_start(settings: dict[str, Any]) -> None:
    model = {"n_layers": 4, "d_model": 128, "n_heads": 4, "n_kv_heads": 4, "d_ff": 512}
    settings["training"] |= {"model": model, "global_batch_tokens": 4096, "max_tokens": 8192}
    wanted = RunConfig.model_validate(settings)
    footprint = Footprint.measure(wanted.training, wanted.data.vocab_size, 1, torch.device("cpu"))
    assert fitting(footprint, 1, 4 * 10**9)[0] == 128
    assert int(printed(DECIDE, json.dumps(settings), str(120 * 10**6))) in (64, 32, 16, 8)


def test_a_resumed_run_keeps_it_and_ends_in_the_same_bytes(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, resumed, other = (
        RunConfig.model_validate({**settings, "run_dir": str(tmp_path / name)})
        for name in ("whole", "resumed", "other")
    )
    assert run(whole) == DONE
    assert chosen(whole.run_dir) == 8
    shutil.copytree(whole.run_dir, resumed.run_dir)
    shutil.rmtree(publish.existing(resumed.run_dir / "checkpoints")[-1])
    monkeypatch.setattr(micro_batch, "free_memory", lambda device: 0)
    assert run(other) == DONE
    assert chosen(other.run_dir) == 1
    assert run(resumed) == DONE
    assert chosen(resumed.run_dir) == 8
    assert outcome(resumed.run_dir)[:2] == outcome(whole.run_dir)[:2] != outcome(other.run_dir)[:2]


def test_all_processes_take_what_fits_into_each(settings: dict[str, Any], tmp_path: Path) -> None:
    assert train(settings, tmp_path / "run", 2, before=little) == [DONE, DONE]
    assert chosen(tmp_path / "run") == 1


@pytest.mark.slow
def test_more_processes_than_it_divides_among_decide_it_anew(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = RunConfig.model_validate({**settings, "run_dir": str(tmp_path / "run")})
    assert run(config) == DONE
    assert chosen(config.run_dir) == 8
    shutil.rmtree(publish.existing(config.run_dir / "checkpoints")[-1])
    assert train(settings, config.run_dir, 2) == [DONE, DONE]
    assert chosen(config.run_dir) == 4
