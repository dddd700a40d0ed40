"""What FSDP gathers and reduces for a micro-batch, counted in one process of two without starting them."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.config import ModelConfig, ParallelConfig
from trainer.model.llama import Llama
from trainer.parallel.parallelize import split
from trainer.parallel.pipeline_parallel import release
from trainer.run.step import Batch, loss_sum

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
