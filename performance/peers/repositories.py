"""Steps of nanochat's and torchtitan's own models, with their own optimizer, loss and compilation, on tokens
that they are given. The loops are written again after scripts/base_train.py and torchtitan/trainer.py.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from peers.train import FOREVER, Work, batch
from torch import nn

NANOCHAT_TRIED, TORCHTITAN_TRIED = "92d63d4", "0.3.0"
BOT = 2


def nanochat(
    work: Work,
    before_step: Callable[[], object],
    clone: str,
    device: str,
    accumulate: int,
    compiled: bool = True,
    steps: int = FOREVER,
) -> None:
    """Its model at the same width, depth and heads, with full windows, and its Muon with AdamW.

    In bf16 on a GPU, in fp32 on a CPU, by its own choice.
    """
    sys.path.insert(0, clone)
    from nanochat.gpt import GPT, GPTConfig

    shape: dict[str, Any] = {"n_layer": work.layers, "n_embd": work.width, "window_pattern": "L"}
    shape |= {"n_head": work.heads, "n_kv_head": work.heads, "vocab_size": work.vocab_size}
    with torch.device("meta"):
        model = GPT(GPTConfig(sequence_len=work.seq_len, **shape))
    model.to_empty(device=device)
    model.init_weights()
    optimizer = model.setup_optimizer()
    forward = torch.compile(model, dynamic=False) if compiled else model
    for _ in range(steps):
        before_step()
        for _ in range(accumulate):
            loss = forward(*batch(work, device)) / accumulate
            loss.backward()
        optimizer.step()
        model.zero_grad(set_to_none=True)
        loss.item()


def torchtitan(
    work: Work,
    before_step: Callable[[], object],
    device: str,
    accumulate: int,
    masked: bool,
    compiled: bool = True,
    steps: int = FOREVER,
) -> None:
    """Its Llama 3 under FSDP2 of one process with its chunked loss, compiled by block, with fused AdamW.

    `masked`: documents are kept apart; else a window is one document. On a GPU attention is its `varlen`, in
    bf16. Its kernels and flex have no backward pass on a CPU, which takes SDPA in fp32 without masks.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
    from torchtitan.config import CompileConfig
    from torchtitan.distributed.fsdp import apply_fsdp_to_decoder

    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    with torch.device("meta"):
        model = _llama(work, device).build()
    if compiled:
        for block in model.layers.values():
            block.compile(fullgraph=True)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    mesh = init_device_mesh(device, (1,), mesh_dim_names=("fsdp",))
    apply_fsdp_to_decoder(model, mesh, dtype, torch.float32, pp_enabled=False)
    model.to_empty(device=device)
    with torch.no_grad():
        model.init_states(buffer_device=torch.device(device))
    loss_of = ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config()).build(
        compile_config=CompileConfig(enable=compiled)
    )
    loss_of.set_lm_head(model.lm_head)
    model._skip_lm_head = True
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    valid = torch.tensor(float(work.rows * work.seq_len * accumulate), device=device)
    for _ in range(steps):
        before_step()
        for _ in range(accumulate):
            inputs, targets = batch(work, device)
            positions = _positions(inputs, masked)
            masks = model.get_attention_masks(positions) if device == "cuda" else None
            loss, _ = loss_of(model(inputs, positions, masks), targets, valid)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def _llama(work: Work, device: str) -> Any:
    """The configuration of torchtitan's Llama 3 in the shape of `work`, its head tied to the embedding."""
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.common.param_init import skip_param_init
    from torchtitan.models.llama3 import Llama3Model, _build_llama3_layers, _output_linear_init

    width, ones = work.width, {"weight": nn.init.ones_}
    layers = _build_llama3_layers(
        n_layers=work.layers,
        dim=width,
        n_heads=work.heads,
        hidden_dim=width * 8 // 3,
        rope=ComplexRoPE.Config(dim=width // work.heads, max_seq_len=work.seq_len),
        attn_backend="varlen" if device == "cuda" else "flex",
    )
    if device == "cpu":
        for layer in layers:
            layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return Llama3Model.Config(
        dim=width,
        vocab_size=work.vocab_size,
        enable_weight_tying=True,
        tok_embeddings=Embedding.Config(
            num_embeddings=work.vocab_size, embedding_dim=width, param_init={"weight": skip_param_init}
        ),
        norm=RMSNorm.Config(normalized_shape=width, param_init=ones),
        lm_head=Linear.Config(
            in_features=width, out_features=work.vocab_size, param_init=_output_linear_init(width)
        ),
        layers=layers,
    )


def _positions(inputs: torch.Tensor, masked: bool) -> torch.Tensor:
    """The place of each token in its document; of all in the window unless `masked`."""
    places = torch.arange(inputs.shape[1], device=inputs.device).expand(inputs.shape)
    if not masked:
        return places
    starts = torch.where(inputs == BOT, places, 0).cummax(dim=1).values
    return places - starts
