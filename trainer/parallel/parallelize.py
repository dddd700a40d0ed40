"""Splits a model over processes, in place: tensor parallel, then FSDP2. The model's code does not know."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from trainer.config import ParallelConfig
from trainer.model.llama import Llama
from trainer.model.precision import AUTOCAST, Precision
from trainer.parallel.pipeline_parallel import root

# [batch, sequence, features], and [batch, sequence, heads, head_dim] for the norms of queries and keys.
SEQUENCE, HEADS = 1, 2


def split(model: Llama, mesh: DeviceMesh, parallel: ParallelConfig, precision: Precision) -> None:
    """Keeps on each process only its part of the weights, which must be equal on all processes before.

    Parameters keep their names.
    """
    if parallel.tp > 1:
        _split_matrices(model, mesh["tp"])
    copies = mesh["dp_replicate"].size()
    data = mesh["dp_replicate", "dp_shard"] if copies > 1 else mesh["dp_shard"]
    # Matrix products run in the precision of a single process; residuals, sums and gradients stay in fp32.
    policy = MixedPrecisionPolicy(
        AUTOCAST.get(precision), reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    for block in model.model.layers:
        fully_shard(block, mesh=data, reshard_after_forward=parallel.reshard_after_forward, mp_policy=policy)
    for modules, its_policy in _around_blocks(model, policy):
        # The backward pass does not read the embedding, and begins with the head.
        fully_shard(modules, mesh=data, reshard_after_forward=False, mp_policy=its_policy)
    fully_shard(root(model), mesh=data)


def _around_blocks(
    model: Llama, policy: MixedPrecisionPolicy
) -> Iterator[tuple[list[nn.Module], MixedPrecisionPolicy]]:
    """What is gathered together around the blocks, as in torchtitan: the embedding, from which residuals are
    in fp32, and the last norm with the head; all of it if they share a weight.
    """
    embedding: list[nn.Module] = [model.model.embed_tokens] if hasattr(model.model, "embed_tokens") else []
    head: list[nn.Module] = [model.model.norm, model.lm_head] if hasattr(model, "lm_head") else []
    starts = replace(policy, output_dtype=torch.float32)
    if model.config.tie_embeddings:
        yield [*embedding, *head], starts
        return
    if embedding:
        yield embedding, starts
    if head:
        yield head, policy


class _OfItsHeads(ParallelStyle):
    """Attention sinks: each process keeps all of them, as it does norms, and computes with those of its
    heads.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def of_its_heads(_: nn.Module, sinks: DTensor, mesh: DeviceMesh) -> Any:
            return sinks.redistribute(mesh, [Shard(0)]).to_local()

        return distribute_module(module, device_mesh, output_fn=of_its_heads)


def _split_matrices(model: Llama, mesh: DeviceMesh) -> None:
    """Tensor and sequence parallel after Megatron (Korthikanti et al. 2022, arXiv 2205.05198).

    Matrices are split by heads and by the width of the MLP, activations between them by the sequence. Each
    process keeps the full embedding and head.
    """
    split_sequence, all_of_it = Shard(SEQUENCE), Replicate()
    rest = (None,) * 4  # angles, mask and cache
    plan: dict[str, ParallelStyle] = {
        "input_layernorm": SequenceParallel(),
        "self_attn": PrepareModuleInput(
            input_layouts=(split_sequence, *rest), desired_input_layouts=(all_of_it, *rest)
        ),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=split_sequence),
        "post_attention_layernorm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(split_sequence,), desired_input_layouts=(all_of_it,)),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=split_sequence),
    }
    if model.config.qk_norm:
        norms = SequenceParallel(sequence_dim=HEADS, use_local_output=True)
        plan |= {"self_attn.q_norm": norms, "self_attn.k_norm": norms}
    if model.config.attention_sinks:
        plan["self_attn.sinks"] = _OfItsHeads()
    for block in model.model.layers:
        parallelize_module(block, mesh, plan)
    around: list[tuple[str, ParallelStyle]] = [
        (
            "embed_tokens",
            PrepareModuleOutput(output_layouts=all_of_it, desired_output_layouts=split_sequence),
        ),
        ("norm", SequenceParallel()),
        ("norm", PrepareModuleOutput(output_layouts=split_sequence, desired_output_layouts=all_of_it)),
    ]
    for name, style in around:
        if hasattr(model.model, name):
            parallelize_module(model.model, mesh, {name: style})
