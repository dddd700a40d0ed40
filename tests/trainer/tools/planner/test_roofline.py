"""The time of a step: what is counted by hand, and what it must follow."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from trainer.config import TrainingConfig
from trainer.system.gpus import GPUS
from trainer.tools.planner import rates
from trainer.tools.planner.roofline import Rates, Step, step

H200 = Rates(products=670e12, attention=200e12, memory=4e12, link=340e9, host=1e-3)
SMALL = {"n_layers": 12, "d_model": 768, "n_heads": 12, "n_kv_heads": 12, "d_ff": 2048}
ROWS = 16_384


def training(model: Any, seq_len: int, batch: int = ROWS, **settings: Any) -> TrainingConfig:
    every = {key: {"every_tokens": 1} for key in ("checkpoint", "evaluation")}
    sizes = {"seq_len": seq_len, "micro_batch_size": ROWS // seq_len, "global_batch_tokens": batch}
    return TrainingConfig.model_validate({"model": model, **sizes, "max_tokens": batch, **every, **settings})


def on_h200(settings: TrainingConfig, gpus: int = 1, compiled: bool = True) -> Step:
    return step(settings, 50_304, H200, gpus, compiled, compiled)


@pytest.mark.parametrize(("model", "seq_len", "traced"), [(SMALL, 1024, 127_500), ("1b", 4096, 372_400)])
def test_a_block_moves_the_bytes_that_its_generated_kernels_move(
    model: Any, seq_len: int, traced: int
) -> None:
    one = training(model, seq_len)
    more = one.model.model_copy(update={"n_layers": one.model.n_layers + 1})
    longer = on_h200(one.model_copy(update={"model": more})).passes - on_h200(one).passes
    assert longer * H200.memory / ROWS == pytest.approx(traced, rel=0.01)


def test_a_micro_batch_of_1b_takes_what_its_counted_operations_and_bytes_take() -> None:
    found = on_h200(training("1b", 4096, optimizer={"kind": "adamw"}))
    # 6 operations for each of 973 M weights in blocks and 103 M in the head, and 13.2 TFLOP of attention.
    assert found.products == pytest.approx(6 * (16 * 60_817_408 + 50_304 * 2048) * ROWS / 670e12)
    assert found.attention == pytest.approx(13.19e12 / 200e12, rel=1e-3)
    assert 0.231 <= found.seconds - found.optimizer <= 0.26
    assert on_h200(training("1b", 4096), compiled=False).passes > 2.5 * found.passes


def test_the_host_is_what_takes_longest_in_a_small_model_with_small_micro_batches() -> None:
    small = training(SMALL, 1024, batch=4 * ROWS)
    assert on_h200(small).host < sum(on_h200(small).of_the_device.values())
    tiny = small.model_copy(update={"micro_batch_size": 2})
    assert on_h200(tiny).seconds == on_h200(tiny).host == pytest.approx(12 * 32 * 1e-3)


def test_a_split_model_pays_for_gathers_that_computing_does_not_hide() -> None:
    copies, split = training("7b", 4096, batch=64 * ROWS), {"dp_shard": 8}
    shared = training("7b", 4096, batch=64 * ROWS, parallel=split)
    assert on_h200(copies, gpus=1).collectives == 0
    assert on_h200(copies, gpus=8).collectives == pytest.approx(2 * 7 / 8 * 4 * 6.89e9 / 340e9, rel=0.01)
    slow = step(shared, 50_304, replace(H200, link=32e9), 8, True, True)
    assert slow.collectives > 5 * on_h200(shared, gpus=8).collectives > 0
    assert on_h200(shared, gpus=8).optimizer < on_h200(copies, gpus=8).optimizer


def test_recomputing_activations_costs_another_forward_pass() -> None:
    kept, again = (training("1b", 4096, activation_checkpointing=kind) for kind in ("none", "full"))
    assert on_h200(again).products > 1.28 * on_h200(kept).products
    assert on_h200(again).attention == pytest.approx(on_h200(kept).attention * 4 / 3)


def test_rates_are_measured_on_the_models_own_shapes_and_taken_from_the_data_sheet_elsewhere() -> None:
    small = training({**SMALL, "n_layers": 1, "d_model": 96, "n_heads": 2, "n_kv_heads": 2, "d_ff": 256}, 128)
    found = rates.measured(small, 512, torch.device("cpu"), "fp32", link=1.0)
    assert found.attention > 1e8 and 1e8 < found.products < 1e14 and 1e8 < found.memory < 1e13
    sheet = rates.of_data_sheet(GPUS["h200"], small.model)
    assert 0.5 * 989e12 < sheet.products < 670e12 and sheet.memory == pytest.approx(4e12)
