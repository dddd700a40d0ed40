"""The memory of a GPU, which need not be in this machine, against what the trainer's own parts hold."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.thorough import examples
from trainer.config import InitConfig, ModelConfig, OptimizerConfig, ParallelConfig, TrainingConfig
from trainer.model import cpu_backward
from trainer.model.llama import Llama
from trainer.model.loss import summed_cross_entropy
from trainer.optim.build import build
from trainer.optim.state import state_tensors
from trainer.parallel.parallelize import split
from trainer.parallel.world import DIMENSIONS
from trainer.run.batch import Batch
from trainer.run.fit.memory import Footprint, Memory
from trainer.run.objectives import loss_sum

VOCAB = 1000
ANY = st.fixed_dictionaries(
    {},
    optional={
        "objective": st.sampled_from(["sft", "dpo"]),
        "precision": st.sampled_from(["fp32", "tf32", "bf16", "fp16", "fp8"]),
        "attention": st.sampled_from(["sdpa", "flex", "math"]),
        "document_masking": st.booleans(),
        "dropout": st.just(0.1),
        "activation_checkpointing": st.sampled_from(["selective", "full"]),
        "optimizer": st.sampled_from(["adamw", "muon", "sophia"]).map(lambda kind: {"kind": kind}),
        "averaging": st.just({"half_life_tokens": 1000}),
        "z_loss": st.just(1e-4),
        "lora": st.just({"rank": 2}),
    },
)
MODEL = ModelConfig(n_layers=3, d_model=256, n_heads=4, n_kv_heads=2, d_ff=640)


def wanted(model: ModelConfig = MODEL, micro_batch_size: int = 1, **changes: Any) -> TrainingConfig:
    tokens = 128 * micro_batch_size
    settings: dict[str, Any] = {key: {"every_tokens": 1} for key in ("checkpoint", "evaluation")}
    settings |= {"model": model, "seq_len": 128, "micro_batch_size": micro_batch_size}
    settings |= {"global_batch_tokens": tokens, "max_tokens": tokens}
    return TrainingConfig.model_validate(settings | changes)


def on_gpu(model: ModelConfig = MODEL, micro_batch_size: int = 1, **changes: Any) -> Memory:
    training = wanted(model, micro_batch_size, **changes)
    return Footprint.measure(training, VOCAB, 1, torch.device("cuda")).memory()


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


def test_activations_are_what_autograd_keeps_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_backward, "applies_to", lambda *tensors: False)  # as on a GPU
    model = Llama(MODEL, VOCAB, 128, "sdpa")
    model.initialize(InitConfig(), seed=0)
    kept = saved_bytes(model, torch.randint(0, VOCAB, (5, 129)))
    assert on_gpu(micro_batch_size=5).activations == pytest.approx(kept, rel=0.01)


@pytest.mark.parametrize("kind", ["adamw", "muon", "adafactor", "lion", "sophia"])
def test_weights_and_optimizer_state_are_those_of_the_trainer(kind: str) -> None:
    model = Llama(MODEL, VOCAB, 128, "sdpa")
    model.initialize(InitConfig(), seed=0)
    optimizers = build(model, OptimizerConfig.model_validate({"kind": kind}))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for optimizer in optimizers:
        optimizer.step()
    state = sum(value.nbytes for value in state_tensors(model, optimizers).values())
    memory = on_gpu(optimizer={"kind": kind})
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert memory.weights == memory.gradients == weights
    assert memory.optimizer == pytest.approx(state, rel=0.001, abs=0.01 * weights)


def test_moments_in_8_bits_take_a_quarter_of_those_in_32() -> None:
    eight_bits, adamw = (on_gpu(optimizer={"kind": kind}).optimizer for kind in ("adamw_8bit", "adamw"))
    assert eight_bits == pytest.approx(adamw / 4, rel=0.02)


def test_the_state_of_another_packages_class_is_counted() -> None:
    given = {"kind": "python", "python": "torch.optim:SGD"}
    none, one = (
        on_gpu(optimizer={**given, "params": params}).optimizer for params in ({}, {"momentum": 0.9})
    )
    adamw = on_gpu(optimizer={"kind": "adamw"}).optimizer
    assert (none, one) == pytest.approx((0, adamw / 2), rel=0.001, abs=1000)


@pytest.mark.parametrize("kind", ["none", "full"])
def test_dp_shard_splits_weights_gradients_and_optimizer_state_among_the_gpus(kind: str) -> None:
    alone, split = (
        on_gpu(micro_batch_size=4, activation_checkpointing=kind, parallel={"dp_shard": shards})
        for shards in (1, 8)
    )
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(split, part) == getattr(alone, part) // 8
    # Autocast's copies of the matrices for the backward pass, which FSDP makes again.
    matrices = MODEL.parameters(VOCAB) - 2 * VOCAB * MODEL.d_model
    copies = 2 * matrices if kind == "none" else 0
    assert alone.activations - split.activations == pytest.approx(copies, rel=0.01)


@pytest.fixture
def one_of_eight() -> Iterator[DeviceMesh]:
    """A process without its seven neighbors: what it receives has no content, but takes as much memory."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield init_device_mesh("cpu", (1, 8, 1), mesh_dim_names=DIMENSIONS)
    dist.destroy_process_group()


@pytest.mark.parametrize("tied", [False, True])
def test_embedding_and_head_are_counted_as_fsdp_gathers_them(one_of_eight: DeviceMesh, tied: bool) -> None:
    shape = MODEL.model_copy(update={"tie_embeddings": tied})
    model = Llama(shape, VOCAB, 128, "sdpa")
    model.initialize(InitConfig(), seed=0)
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
    blocks = 2 * 2 * (shape.parameters(VOCAB) - (1 if tied else 2) * VOCAB * shape.d_model) // shape.n_layers
    gathered = on_gpu(shape, parallel={"dp_shard": 8}).gathered - blocks
    assert gathered == pytest.approx(held, rel=0.01)


def test_recomputing_activations_keeps_far_less() -> None:
    deep = MODEL.model_copy(update={"n_layers": 24})
    kept, recomputed = (
        on_gpu(deep, micro_batch_size=32, activation_checkpointing=kind) for kind in ("none", "full")
    )
    assert recomputed.activations < 0.25 * kept.activations


@settings(max_examples=examples(25), deadline=None)
@given(ANY)
def test_every_training_that_a_recipe_can_name_has_an_estimate(changes: dict[str, Any]) -> None:
    pretrained = {"pretrained": {"path": "base"}} if "lora" in changes else {}
    try:
        training = wanted(**changes, **pretrained)
    except ValueError:
        return  # the recipe is refused with a reason
    memory = Footprint.measure(training, VOCAB, 1, torch.device("cuda")).memory()
    assert memory.total > memory.weights > 0 and memory.activations > 0
