"""The planner's memory against what autograd and the optimizers of the trainer keep."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, get_args

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainer.config import InitConfig, ModelConfig, OptimizerConfig, ParallelConfig, RunConfig
from trainer.model.activation_checkpointing import Recompute
from trainer.model.llama import Llama
from trainer.model.loss import summed_cross_entropy
from trainer.optim.build import build
from trainer.parallel.parallelize import split
from trainer.parallel.world import DIMENSIONS, World
from trainer.run.memory import estimate
from trainer.run.step import loss_sum
from trainer.tools.planner.gpu_memory import (
    STATE_BYTES,
    Workload,
    gpu_memory,
    kept_block_bytes,
    largest_micro_batch,
)

VOCAB = 1000
MODEL = ModelConfig(n_layers=3, d_model=256, n_heads=4, n_kv_heads=2, d_ff=640)


def saved_bytes(model: Llama, windows: torch.Tensor) -> int:
    """The storages that a forward pass in bf16 keeps for the backward one, parameters and tables not
    counted.
    """
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16),
    ):
        hidden = model(windows[:, :-1]).flatten(0, 1)
        loss = summed_cross_entropy(hidden, model.lm_head.weight, windows[:, 1:].flatten(), VOCAB)
    own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    assert loss.requires_grad
    return sum(storage.nbytes() for place, storage in saved.items() if place not in own)


@pytest.mark.parametrize("attention", ["math", "sdpa"])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_activations_are_what_autograd_keeps_of_the_model(
    attention: Literal["math", "sdpa"], qk_norm: bool
) -> None:
    shape = MODEL.model_copy(update={"qk_norm": qk_norm})
    model = Llama(shape, VOCAB, 128, attention)
    model.initialise(InitConfig(), seed=0)
    measured = saved_bytes(model, torch.randint(0, VOCAB, (3, 129)))
    work = Workload(shape, VOCAB, seq_len=128, micro_batch_size=3, attention=attention)
    memory = gpu_memory(work)
    head_gradient = 4 * work.rows * shape.d_model
    assert memory.activations + memory.bf16_weights + head_gradient == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize("kind", ["none", "selective", "full"])
def test_what_blocks_keep_under_activation_checkpointing_is_what_a_step_of_the_trainer_keeps(
    settings: dict[str, Any], kind: Recompute
) -> None:
    settings["data"]["vocab_size"] = VOCAB
    wanted = {
        "seq_len": 128,
        "micro_batch_size": 2,
        "global_batch_tokens": 512,
        "max_tokens": 512,
        "precision": "bf16",
        "attention": "sdpa",
    }
    settings["training"] |= wanted | {"model": MODEL.model_dump(), "activation_checkpointing": kind}
    kept = estimate(RunConfig.model_validate(settings), 1, torch.device("cpu")).activations
    work = Workload(MODEL, VOCAB, seq_len=128, micro_batch_size=2, activation_checkpointing=kind)
    last_norm_and_head = work.tokens * MODEL.d_model * 10 + 4 * work.rows * MODEL.d_model
    copies = gpu_memory(work).bf16_weights if kind == "none" else 0  # else made again for each block
    assert MODEL.n_layers * kept_block_bytes(work) + copies + last_norm_and_head == pytest.approx(
        kept, rel=0.05
    )


@pytest.mark.parametrize("kind", ["adamw", "muon", "lion", "sophia", "adafactor"])
def test_weights_and_optimizer_state_are_those_of_the_trainer(kind: str) -> None:
    model = Llama(MODEL, VOCAB, 128, "sdpa")
    model.initialise(InitConfig(), seed=0)
    optimizers = build(model, OptimizerConfig.model_validate({"kind": kind}))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for optimizer in optimizers:
        optimizer.step()
    state = sum(
        value.nbytes
        for optimizer in optimizers
        for slots in optimizer.state.values()
        for value in slots.values()
        if torch.is_tensor(value)
    )
    memory = gpu_memory(Workload(MODEL, VOCAB, 128, 1, optimizer=kind))
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert memory.weights == memory.gradients == weights
    assert memory.optimizer == pytest.approx(state, rel=0.001, abs=0.01 * weights)


def test_every_optimizer_of_the_trainer_can_be_planned_for() -> None:
    assert set(get_args(OptimizerConfig.model_fields["kind"].annotation)) == set(STATE_BYTES)


def test_each_stage_of_zero_shares_one_more_part_among_the_gpus() -> None:
    work = Workload(MODEL, VOCAB, 128, 4)
    whole = gpu_memory(work)
    stages = [gpu_memory(work, sharding, gpus=8) for sharding in ("ddp", "zero1", "zero2", "zero3")]
    assert stages[0] == whole
    assert [memory.optimizer for memory in stages[1:]] == [whole.optimizer // 8] * 3
    assert [memory.gradients for memory in stages[1:]] == [
        whole.gradients,
        whole.gradients // 8,
        whole.gradients // 8,
    ]
    assert [memory.weights for memory in stages[1:]] == [whole.weights, whole.weights, whole.weights // 8]


@pytest.fixture
def one_of_eight() -> Iterator[World]:
    """A process whose seven neighbours are not there: what it is sent is no number, but takes the memory that
    it would.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield World(0, 8, torch.device("cpu"), init_device_mesh("cpu", (1, 8, 1), mesh_dim_names=DIMENSIONS))
    dist.destroy_process_group()


@pytest.mark.parametrize("tied", [False, True])
def test_embedding_and_head_are_counted_as_fsdp_gathers_them(one_of_eight: World, tied: bool) -> None:
    shape = MODEL.model_copy(update={"tie_embeddings": tied})
    model = Llama(shape, VOCAB, 128, "sdpa")
    model.initialise(InitConfig(), seed=0)
    split(model, one_of_eight, ParallelConfig(dp_shard=8), "bf16")
    loss = loss_sum(model, torch.randint(0, VOCAB, (1, 129)), "bf16", None)
    whole = {name: parameter for name, parameter in model.named_parameters() if ".layers." not in name}
    gradients: list[torch.Tensor] = []
    for parameter in whole.values():
        parameter.register_post_accumulate_grad_hook(lambda parameter: gradients.append(parameter.grad))
    held = sum(parameter.untyped_storage().nbytes() for parameter in whole.values())
    loss.backward()
    held += sum(gradient.nbytes for gradient in gradients)
    gathered = gpu_memory(Workload(shape, VOCAB, 128, 1), "zero3", gpus=8).gathered
    assert gathered == pytest.approx(held, rel=0.01)


def test_a_large_vocabulary_takes_memory_on_every_gpu_however_many_share_the_weights() -> None:
    llama = ModelConfig(n_layers=32, d_model=4096, n_heads=32, n_kv_heads=32, d_ff=11008)
    work = Workload(llama, 128_000, 4096, 1)
    parts = gpu_memory(work, "zero3", gpus=512)
    assert parts.total > parts.activations + parts.logits + 2 * 4 * (2 * 128_000 * 4096)
    assert gpu_memory(work, "zero3", gpus=1).total == gpu_memory(work).total


def test_recomputing_activations_keeps_far_less_and_lets_larger_micro_batches_fit() -> None:
    deep = MODEL.model_copy(update={"n_layers": 24})
    work = Workload(deep, VOCAB, 512, 8)
    recomputed = replace(work, activation_checkpointing="full")
    assert gpu_memory(recomputed).activations < 0.25 * gpu_memory(work).activations
    fits = largest_micro_batch(work, "ddp", 1, 4 * 10**9)
    assert (
        gpu_memory(replace(work, micro_batch_size=fits)).total
        <= 4 * 10**9
        < gpu_memory(replace(work, micro_batch_size=2 * fits)).total
    )
    assert largest_micro_batch(recomputed, "ddp", 1, 4 * 10**9) > fits
    assert largest_micro_batch(work, "ddp", 1, 10**6) == 0
