"""What one process of several holds, gathers and reduces, without starting the others."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.config import ModelConfig, ParallelConfig
from trainer.model.llama import Llama
from trainer.parallel.dtensor import in_one_copy
from trainer.parallel.parallelize import split
from trainer.parallel.pipeline_parallel import release
from trainer.parallel.world import DIMENSIONS, World
from trainer.run.batch import Batch
from trainer.run.objectives import loss_sum

SHAPE = {"n_layers": 3, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 176, "qk_norm": False}
VOCAB = 1024


@pytest.fixture
def two_processes() -> Iterator[None]:
    """This process is the first of two; what the other would send is arbitrary."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


def split_in_two(**shape: Any) -> Llama:
    """A model of which this process holds one half."""
    model = Llama(ModelConfig.model_validate({**SHAPE, **shape}), VOCAB, 32, "math")
    mesh = init_device_mesh("cpu", (1, 2, 1), mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
    split(model, mesh, ParallelConfig(dp_shard=2), "bf16")
    return model


class Collectives(TorchDispatchMode):
    """Each collective with the type and the bytes of the full tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.dtype, int]] = []

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        name = str(operation)
        if name.startswith("c10d."):
            kind = "gather" if "allgather" in name else "reduce"
            full = given[0] if kind == "gather" else given[1]
            self.seen.append((kind, full.dtype, full.nbytes))
        return operation(*given, **(options or {}))


@pytest.mark.parametrize("tied", [False, True])
def test_embedding_and_head_are_gathered_once_in_bf16(two_processes: None, tied: bool) -> None:
    torch.manual_seed(0)
    model = split_in_two(tie_embeddings=tied)
    block = sum(parameter.numel() for parameter in model.model.layers[0].parameters())
    batch = Batch.of(torch.zeros(1, 33, dtype=torch.int64), None)
    for _ in range(2):
        with Collectives() as collectives:
            loss_sum(model, batch, "bf16").backward()
        gathered = [size for kind, dtype, size in collectives.seen if kind == "gather"]
        reduced = [size for kind, dtype, size in collectives.seen if kind == "reduce"]
        assert {dtype for kind, dtype, _ in collectives.seen if kind == "gather"} == {torch.bfloat16}
        assert {dtype for kind, dtype, _ in collectives.seen if kind == "reduce"} == {torch.float32}
        vocabulary = VOCAB * 64 * (1 if tied else 2) + 64
        assert sum(gathered) == 2 * (vocabulary + 2 * 3 * block)
        assert sum(reduced) == 4 * (vocabulary + 3 * block)
        if not tied:
            # The head comes last and its gradient leaves first, so both travel while blocks compute.
            head = VOCAB * 64 + 64
            assert gathered[4] == 2 * head and reduced[0] == 4 * head


def test_a_forward_pass_alone_leaves_nothing_gathered(two_processes: None) -> None:
    model = split_in_two()
    with torch.no_grad():
        loss_sum(model, Batch.of(torch.zeros(1, 33, dtype=torch.int64), None), "bf16")
    assert model.lm_head.weight.shape == (VOCAB, 64) and model.lm_head.weight.dtype == torch.bfloat16
    release(model)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert {type(parameter.data).__name__ for parameter in model.parameters()} == {"DTensor"}


def test_a_micro_batch_after_an_evaluation_gathers_what_any_other_does(two_processes: None) -> None:
    model = split_in_two()
    batch = Batch.of(torch.zeros(1, 33, dtype=torch.int64), None)
    with Collectives() as before:
        loss_sum(model, batch, "bf16").backward()
    with torch.no_grad():
        loss_sum(model, batch, "bf16")
    release(model)
    with Collectives() as after:
        loss_sum(model, batch, "bf16").backward()
    assert after.seen == before.seen


def test_tensor_parallel_splits_matrices_by_heads_and_by_the_width_of_the_mlp(two_processes: None) -> None:
    model = Llama(ModelConfig.model_validate(SHAPE), VOCAB, 32, "math")
    split(model, init_device_mesh("cpu", (1, 1, 2), mesh_dim_names=DIMENSIONS), ParallelConfig(tp=2), "fp32")
    for block in model.model.layers:
        held = {
            name: tuple(module.weight.to_local().shape)
            for name, module in block.named_modules()
            if isinstance(module, torch.nn.Linear)
        }
        assert held == {
            "self_attn.q_proj": (32, 64),
            "self_attn.k_proj": (16, 64),
            "self_attn.v_proj": (16, 64),
            "self_attn.o_proj": (64, 32),
            "mlp.gate_proj": (88, 64),
            "mlp.up_proj": (88, 64),
            "mlp.down_proj": (64, 88),
        }


def test_a_norm_over_processes_takes_of_each_the_part_that_it_holds(two_processes: None) -> None:
    mesh = init_device_mesh("cpu", (1, 2, 1), mesh_dim_names=DIMENSIONS)
    world = World(0, 2, torch.device("cpu"), mesh)
    threes = torch.full((8, 8), 3.0)
    # Without a source, as these processes send nothing.
    halved = distribute_tensor(threes, mesh, [Replicate(), Shard(0), Replicate()], src_data_rank=None)
    assert world.norm([halved]).item() == pytest.approx((32 * 9) ** 0.5)  # of 64 elements, 32 are here
    whole = distribute_tensor(threes, mesh, [Replicate()] * 3)
    assert world.norm([whole]).item() == pytest.approx((64 * 9 / 2) ** 0.5)  # both processes count half


@pytest.fixture
def four_processes() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_a_copy_is_made_of_the_parts_of_one_replica(four_processes: None) -> None:
    mesh = init_device_mesh("cpu", (2, 2, 1), mesh_dim_names=DIMENSIONS)
    tensor = distribute_tensor(torch.zeros(8, 8), mesh, [Replicate(), Shard(0), Replicate()])
    assert [in_one_copy(tensor, 0, other) for other in range(4)] == [True, True, False, False]
    assert [in_one_copy(tensor, 3, other) for other in range(4)] == [False, False, True, True]
