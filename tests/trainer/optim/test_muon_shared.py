"""Muon's work on a model that several processes hold, counted process by process without starting them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from trainer.config import ModelConfig, OptimizerConfig
from trainer.model.llama import Llama
from trainer.model.precision import multiplies_bf16
from trainer.optim.build import build

PROCESSES = 8
SHAPE = ModelConfig.model_validate({"n_layers": 8, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 176})
# 2 x queries and outputs, 2 x keys and values, 3 x MLP.
MATRICES = 8 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 176 * 64)
ELEMENT = 2 if multiplies_bf16(torch.device("cpu")) else 4


class Sent(TorchDispatchMode):
    """Counts the bytes that collectives bring to this process from others."""

    received = 0

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        name = str(operation)
        if name.startswith("c10d.alltoall_base_"):
            self.received += given[0].nbytes * (PROCESSES - 1) // PROCESSES
        elif name.startswith("c10d.broadcast_"):
            self.received += sum(tensor.nbytes for tensor in given[0] if given[2] != dist.get_rank())
        else:
            assert not name.startswith(("c10d", "_c10d")), name
        return operation(*given, **(options or {}))


@contextmanager
def process(rank: int) -> Iterator[None]:
    """One of PROCESSES; what the others would send is arbitrary."""
    dist.init_process_group("fake", rank=rank, world_size=PROCESSES, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def step(sharded: bool, copies: int = 1) -> tuple[int, int]:
    """Multiplications of one step in this process, and the bytes that it receives."""
    group = dist.group.WORLD if dist.is_initialized() else None
    model = Llama(SHAPE, 300, 32, "math")
    if sharded:
        sizes = (copies, PROCESSES // copies)
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp_replicate", "dp_shard"))
        for block in model.model.layers:
            fully_shard(block, mesh=mesh if copies > 1 else mesh["dp_shard"])
    muon = build(model, OptimizerConfig(kind="muon"), holders=group)[0]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with FlopCounterMode(display=False) as flops, Sent() as sent:
        muon.step()
    return flops.get_total_flops(), sent.received


@pytest.mark.parametrize(("sharded", "copies"), [(False, 8), (True, 1), (True, 2)])
def test_each_process_orthogonalizes_an_equal_share(sharded: bool, copies: int) -> None:
    whole, nothing = step(sharded=False)
    assert nothing == 0
    shares, received = [], []
    for rank in range(PROCESSES):
        with process(rank):
            flops, arrived = step(sharded, copies)
        shares.append(flops)
        received.append(arrived)
    assert sum(shares) == whole
    assert max(shares) <= 1.05 * whole / PROCESSES
    # A copy receives what others own; a part is collected by its owner and comes back.
    most = MATRICES * ELEMENT * (1 if not sharded else (1 + copies) / PROCESSES)
    assert max(received) <= 1.05 * most
