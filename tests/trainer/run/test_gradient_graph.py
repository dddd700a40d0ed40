"""Micro-batches that a GPU repeats as CUDA graphs: the same training, and none where it cannot be."""

import logging
from typing import Any

import pytest
import torch

from tests.trainer.steps import new_session
from trainer.parallel.world import World
from trainer.run.batch import Batch
from trainer.run.fit.rehearsal import dry_run
from trainer.run.gradient_graph import GradientGraphs
from trainer.run.session import Session

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
STAGES = [{"name": "short", "until_tokens": 768, "seq_len": 16}, {"name": "long"}]


def losses(settings: dict[str, Any], repeats: bool, training: dict[str, Any]) -> tuple[list[float], Session]:
    """Those of six steps, and the session after them."""
    changed = settings["training"] | {"compile": True, "micro_batch_size": 2} | training
    device = torch.device("cuda", 0)
    session = new_session({**settings, "training": changed}, World(0, 1, device))
    dry_run(session)
    if repeats:
        session.repeat_in_graphs()
    batches = (torch.from_numpy(session.plan.data.batch(number, 0, 1)) for number in range(6))
    return [session.take_step(windows.to(device)).loss for windows in batches], session


@on_a_gpu
@pytest.mark.parametrize(
    "training",
    [
        {},
        {"precision": "bf16"},
        {"dropout": 0.1, "activation_checkpointing": "full"},
        {"document_masking": True},
        {"precision": "bf16", "document_masking": True, "attention": "flash"},
        {"optimizer": {"kind": "sophia"}},
        {"stages": STAGES},
    ],
    ids=str,
)
def test_training_is_the_same_with_graphs(settings: dict[str, Any], training: dict[str, Any]) -> None:
    expected, _ = losses(settings, False, training)
    found, session = losses(settings, True, training)
    assert session.context.graphs is not None and session.context.graphs.captured
    assert found == pytest.approx(expected, rel=1e-4)


@on_a_gpu
def test_work_that_reads_its_numbers_on_the_host_is_done_without_a_graph(
    caplog: pytest.LogCaptureFixture,
) -> None:
    weight = torch.nn.Parameter(torch.ones(4, device="cuda"))
    batch = Batch(*torch.ones(2, 1, 4, dtype=torch.int64, device="cuda"))

    def work(batch: Batch, divisor: torch.Tensor) -> torch.Tensor:
        loss = (weight * batch.tokens).sum()
        if loss.item() > 0:
            (loss / divisor).backward()
        return loss.detach()[None]

    graphs, two = GradientGraphs([weight]), torch.tensor(2, device="cuda")
    with caplog.at_level(logging.WARNING, "trainer"):
        for times in (1, 2):
            assert graphs.sums(work, batch, two).item() == 4
            assert weight.grad is not None and torch.equal(weight.grad, torch.full_like(weight, times / 2))
    assert not graphs.captured and caplog.text.count("CUDA graphs") == 1


def test_a_cpu_takes_steps_without_graphs(settings: dict[str, Any]) -> None:
    session = new_session(settings)
    session.repeat_in_graphs()
    assert session.context.graphs is None or session.world.device.type == "cuda"
