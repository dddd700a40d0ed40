"""The peers' training loops: nanoGPT's, written again after its model.py and train.py (MIT, Andrej Karpathy),
and `transformers.Trainer` itself.

The GPT here has the parameters of nanoGPT's own at commit 3adf61e, and with the same weights gives the same
loss.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

FOREVER = 1_000_000


@dataclass(frozen=True)
class Work:
    """`tokens`: a file of raw uint16 tokens. The sizes are those of the model and of one step."""

    tokens: str
    vocab_size: int
    layers: int
    width: int
    heads: int
    seq_len: int
    rows: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Work":
        return cls(**json.loads(text))

    def read(self) -> np.ndarray:
        return np.memmap(self.tokens, dtype=np.uint16, mode="r")


class SelfAttention(nn.Module):
    def __init__(self, work: Work) -> None:
        super().__init__()
        self.c_attn = nn.Linear(work.width, 3 * work.width, bias=False)
        self.c_proj = nn.Linear(work.width, work.width, bias=False)
        self.heads = work.heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    def __init__(self, work: Work) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(work.width, bias=False), nn.LayerNorm(work.width, bias=False)
        self.attn = SelfAttention(work)
        self.c_fc = nn.Linear(work.width, 4 * work.width, bias=False)
        self.c_proj = nn.Linear(4 * work.width, work.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    """GPT-2's decoder without biases and dropout, the head tied to the embedding: nanoGPT's defaults."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(work.vocab_size, work.width), nn.Embedding(work.seq_len, work.width)
        self.h = nn.ModuleList(Block(work) for _ in range(work.layers))
        self.ln_f = nn.LayerNorm(work.width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(
                    parameter,
                    std=0.02 / math.sqrt(2 * work.layers) if name.endswith("c_proj.weight") else 0.02,
                )

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-1)


def nanogpt(
    work: Work,
    steps: int,
    before_step: Callable[[], object],
    compiled: bool,
    lr: float,
    warmup: int,
    beta2: float,
    seed: int = 1337,
    device: str = "cpu",
    accumulate: int = 1,
) -> nn.Module:
    """Trains with its AdamW, its clipping and its cosine to a tenth of `lr`; in bf16 on a GPU, in fp32 on a
    CPU, as it does by default.
    """
    torch.manual_seed(seed)
    model = GPT(work).to(device)
    decayed = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    kept = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": kept, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, beta2), fused=device == "cuda")
    forward = torch.compile(model) if compiled else model
    inputs, targets = batch(work, device)
    for step in range(steps):
        before_step()
        ratio = (step - warmup) / max(1, steps - warmup)
        factor = (step + 1) / (warmup + 1) if step < warmup else 0.1 + 0.45 * (1 + math.cos(math.pi * ratio))
        for group in optimizer.param_groups:
            group["lr"] = lr * factor
        for _ in range(accumulate):
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = forward(inputs, targets) / accumulate
            inputs, targets = batch(work, device)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    return model


def batch(work: Work, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random windows and the tokens that follow, on the device."""
    data = work.read()
    starts = torch.randint(len(data) - work.seq_len, (work.rows,)).tolist()
    inputs = torch.stack([torch.from_numpy(data[at : at + work.seq_len].astype(np.int64)) for at in starts])
    targets = torch.stack(
        [torch.from_numpy(data[at + 1 : at + 1 + work.seq_len].astype(np.int64)) for at in starts]
    )
    if device == "cuda":
        return inputs.pin_memory().to(device, non_blocking=True), targets.pin_memory().to(
            device, non_blocking=True
        )
    return inputs, targets


@torch.no_grad()
def validation_loss(model: nn.Module, path: Path, seq_len: int, device: str = "cpu", rows: int = 64) -> float:
    """Nats per token over a file of tokens, in disjoint windows, each token once. `rows`: at a time."""
    tokens = torch.from_numpy(np.fromfile(path, np.uint16).astype(np.int64)).to(device)
    whole = (len(tokens) - 1) // seq_len * seq_len
    total, at = 0.0, 0
    while at < len(tokens) - 1:
        size = min(rows * seq_len, whole - at) or len(tokens) - 1 - at
        shape = (-1, min(seq_len, size))
        total += (
            model(tokens[at : at + size].view(shape), tokens[at + 1 : at + 1 + size].view(shape)).item()
            * size
        )
        at += size
    return total / (len(tokens) - 1)


def hugging_face(
    work: Work,
    before_step: Callable[[], object],
    bf16: bool,
    compiled: bool,
    steps: int = FOREVER,
    seed: int = 42,
    on_cpu: bool = True,
    accumulate: int = 1,
) -> nn.Module:
    """`transformers.Trainer` on a LlamaForCausalLM."""
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )

    class BeforeStep(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            before_step()

    tokens = work.read()
    windows = torch.from_numpy(tokens[: len(tokens) // work.seq_len * work.seq_len].astype(np.int64)).view(
        -1, work.seq_len
    )
    dataset = [{"input_ids": window, "labels": window} for window in windows]
    config = LlamaConfig(
        vocab_size=work.vocab_size,
        hidden_size=work.width,
        intermediate_size=work.width * 8 // 3,
        num_hidden_layers=work.layers,
        num_attention_heads=work.heads,
        max_position_embeddings=work.seq_len,
        tie_word_embeddings=True,
    )
    arguments = TrainingArguments(
        output_dir=str(Path(work.tokens).parent / "hugging_face"),
        per_device_train_batch_size=work.rows,
        max_steps=steps,
        seed=seed,
        learning_rate=1e-3,
        weight_decay=0.1,
        bf16=bf16,
        torch_compile=compiled,
        use_cpu=on_cpu,
        gradient_accumulation_steps=accumulate,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    set_seed(seed)
    model = LlamaForCausalLM(config)
    Trainer(model, arguments, train_dataset=dataset, callbacks=[BeforeStep()]).train()
    return model
