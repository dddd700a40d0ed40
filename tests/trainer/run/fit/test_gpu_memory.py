"""The planner's memory against what autograd and the optimizers of the trainer keep."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainer.config import InitConfig, ModelConfig, OptimizerConfig, ParallelConfig, TrainingConfig
from trainer.model import fewer_passes
from trainer.model.activation_checkpointing import ActivationCheckpointing
from trainer.model.llama import Llama
from trainer.model.loss import summed_cross_entropy
from trainer.optim.build import build
from trainer.parallel.parallelize import split
from trainer.parallel.world import DIMENSIONS
from trainer.run.batch import Batch
from trainer.run.fit.gpu_memory import Footprint
from trainer.run.fit.memory import estimate
from trainer.run.step import loss_sum

VOCAB = 1000
MODEL = ModelConfig(n_layers=3, d_model=256, n_heads=4, n_kv_heads=2, d_ff=640)


def saved_bytes(model: Llama, windows: torch.Tensor) -> int:
    """Bytes that a forward pass in bf16 keeps for the backward pass, without parameters and tables."""
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


def training(model: ModelConfig = MODEL, micro_batch_size: int = 1, **changes: Any) -> TrainingConfig:
    tokens = 128 * micro_batch_size
    wanted = {
        "model": model,
        "seq_len": 128,
        "micro_batch_size": micro_batch_size,
        "global_batch_tokens": tokens,
        "max_tokens": tokens,
        "checkpoint": {"every_tokens": 1},
        "evaluation": {"every_tokens": 1},
    }
    return TrainingConfig.model_validate(wanted | changes)


@pytest.mark.parametrize("qk_norm", [True, False])
def test_activations_are_what_autograd_keeps_of_the_model(
    qk_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fewer_passes, "applies_to", lambda *tensors: False)  # as on a GPU
    shape = MODEL.model_copy(update={"qk_norm": qk_norm})
    model = Llama(shape, VOCAB, 128, "sdpa")
    model.initialise(InitConfig(), seed=0)
    kept = saved_bytes(model, torch.randint(0, VOCAB, (3, 129)))
    assert Footprint.measure(training(shape), VOCAB).on_gpu(3).activations == pytest.approx(kept, rel=0.01)


@pytest.mark.parametrize("kind", get_args(ActivationCheckpointing))
def test_activations_of_larger_micro_batches_are_those_of_a_step_of_the_trainer(
    kind: ActivationCheckpointing,
) -> None:
    wanted = training(micro_batch_size=6, precision="bf16", attention="sdpa", activation_checkpointing=kind)
    kept = estimate(wanted, VOCAB, 1, torch.device("cpu")).activations
    assert Footprint.measure(wanted, VOCAB).on_gpu(6).activations == pytest.approx(kept, rel=0.01)


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
    memory = Footprint.measure(training(optimizer={"kind": kind}), VOCAB).on_gpu(1)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert memory.weights == memory.gradients == weights
    assert memory.optimizer == pytest.approx(state, rel=0.001, abs=0.01 * weights)


def test_moments_in_8_bits_take_a_quarter_of_those_in_32() -> None:
    eight_bits, adamw = (
        Footprint.measure(training(optimizer={"kind": kind}), VOCAB).on_gpu(1)
        for kind in ("adamw_8bit", "adamw")
    )
    assert eight_bits.optimizer == pytest.approx(adamw.optimizer / 4, rel=0.001)


@pytest.mark.parametrize("kind", get_args(ActivationCheckpointing))
def test_dp_shard_splits_weights_gradients_and_optimizer_state_among_the_gpus(
    kind: ActivationCheckpointing,
) -> None:
    footprint = Footprint.measure(training(activation_checkpointing=kind), VOCAB)
    alone, split = footprint.on_gpu(4), footprint.on_gpu(4, shards=8)
    assert [split.weights, split.gradients, split.optimizer] == [
        alone.weights // 8,
        alone.gradients // 8,
        alone.optimizer // 8,
    ]
    # Autocast's copies of the matrices for the backward pass, which FSDP makes again.
    matrices = MODEL.parameters(VOCAB) - 2 * VOCAB * MODEL.d_model
    copies = 2 * matrices if kind == "none" else 0
    assert alone.activations - split.activations == pytest.approx(copies, rel=0.01)


@pytest.fixture
def one_of_eight() -> Iterator[DeviceMesh]:
    """A process without its seven neighbours: what it receives has no content, but takes as much memory."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield init_device_mesh("cpu", (1, 8, 1), mesh_dim_names=DIMENSIONS)
    dist.destroy_process_group()


@pytest.mark.parametrize("tied", [False, True])
def test_embedding_and_head_are_counted_as_fsdp_gathers_them(one_of_eight: DeviceMesh, tied: bool) -> None:
    shape = MODEL.model_copy(update={"tie_embeddings": tied})
    model = Llama(shape, VOCAB, 128, "sdpa")
    model.initialise(InitConfig(), seed=0)
    split(model, one_of_eight, ParallelConfig(dp_shard=8), "bf16")
    loss = loss_sum(model, Batch.of(torch.randint(0, VOCAB, (1, 129)), None), "bf16")
    whole = {name: parameter for name, parameter in model.named_parameters() if ".layers." not in name}
    gradients: list[torch.Tensor] = []
    for parameter in whole.values():
        parameter.register_post_accumulate_grad_hook(lambda parameter: gradients.append(parameter.grad))
    held = sum(parameter.untyped_storage().nbytes() for parameter in whole.values())
    loss.backward()
    held += sum(gradient.nbytes for gradient in gradients)
    held += 4 * model.lm_head.weight.numel()  # FSDP reduces in fp32, one of the two at a time
    footprint = Footprint.measure(training(shape), VOCAB)
    blocks = 2 * 2 * (shape.parameters(VOCAB) - (1 if tied else 2) * VOCAB * shape.d_model) // shape.n_layers
    gathered = footprint.on_gpu(1, shards=8).gathered - blocks
    assert gathered == pytest.approx(held, rel=0.01)


def test_a_large_vocabulary_takes_memory_on_every_gpu_however_many_share_the_weights() -> None:
    llama = ModelConfig(n_layers=32, d_model=4096, n_heads=32, n_kv_heads=32, d_ff=11008)
    parts = Footprint.measure(training(llama), 128_000).on_gpu(1, shards=512)
    assert parts.total > parts.activations + parts.logits + (2 * 2 * 2 + 4) * 128_000 * 4096


def test_recomputing_activations_keeps_far_less_and_lets_larger_micro_batches_fit() -> None:
    deep = MODEL.model_copy(update={"n_layers": 24})
    kept, recomputed = (
        Footprint.measure(training(deep, activation_checkpointing=kind), VOCAB) for kind in ("none", "full")
    )
    assert recomputed.on_gpu(32).activations < 0.25 * kept.on_gpu(32).activations
    fits = kept.largest_micro_batch(1, 4 * 10**9)
    assert kept.on_gpu(fits).total <= 4 * 10**9 < kept.on_gpu(2 * fits).total
    assert recomputed.largest_micro_batch(1, 4 * 10**9) > fits
    assert kept.largest_micro_batch(1, 10**6) == 0
