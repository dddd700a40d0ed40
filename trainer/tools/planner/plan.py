"""The time, cost and memory of a run on a machine, and the loss that a law expects."""

import math
import textwrap
from dataclasses import dataclass

import torch

from trainer.config import TrainingConfig
from trainer.run.fit.memory import Memory
from trainer.system.gpus import PRICES_AS_OF
from trainer.tools.planner.law import BESIROGLU, HOFFMANN, extrapolates

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
# Compute-optimal for 70 M to 16 B parameters: Hoffmann et al. 2022 (Chinchilla, arXiv 2203.15556), approaches
# 1 and 2, and the fit of their runs by Besiroglu et al. 2024 (arXiv 2404.10102).
TOKENS_A_PARAMETER = 20


@dataclass(frozen=True)
class Machine:
    """`count` GPUs called `name`, or the CPU of this machine. Each of them has a peak of `flops` a second and
    `memory` bytes, and costs `price` USD an hour; 0 if that is not known.
    """

    name: str
    count: int
    flops: float
    memory: int
    price: float


@dataclass(frozen=True)
class Plan:
    """A planned run. `speed` is in tokens a second; `speed_from` says where that number is from."""

    machine: Machine
    training: TrainingConfig
    vocab_size: int
    speed: float
    speed_from: str
    memory: Memory

    @property
    def seconds(self) -> float:
        return self.training.max_tokens / self.speed

    @property
    def cost(self) -> float:
        """The cost of the run, in USD."""
        return self.seconds / HOUR * self.machine.count * self.machine.price

    def figures(self) -> dict[str, float]:
        """What a program wants to know of the plan; `cost` in USD, 0 where no price is known, and how many
        `gpus` this machine has.
        """
        return {
            "parameters": self.training.model.parameters(self.vocab_size),
            "tokens": self.training.max_tokens,
            "tokens_per_second": self.speed,
            "seconds": self.seconds,
            "cost": self.cost,
            "memory_bytes": self.memory.total,
            "available_bytes": self.machine.memory,
            "gpus": torch.cuda.device_count(),
        }

    def __str__(self) -> str:
        model, machine, training = self.training.model, self.machine, self.training
        tokens = training.max_tokens
        parameters = model.parameters(self.vocab_size)
        flops, causal = (
            model.flops_per_token(self.vocab_size, training.seq_len, causal) for causal in (False, True)
        )
        mfu = self.speed * flops / (machine.count * machine.flops)
        fits = "fits into" if self.memory.total <= machine.memory else "does not fit into"
        shards = training.parallel.dp_shard
        lines = {
            "Model": f"{count(parameters)} parameters: {model.n_layers} layers, d_model {model.d_model}, "
            f"{model.n_heads} heads ({model.n_kv_heads} for keys), d_ff {model.d_ff}, "
            f"vocabulary {self.vocab_size:,}",
            "Tokens": f"{count(tokens)}, {tokens / parameters:.1f} a parameter (about "
            f"{TOKENS_A_PARAMETER} are compute-optimal), in windows of {training.seq_len:,}",
            "Compute": f"{flops * tokens:.2e} FLOPs, {count(flops)} a token as PaLM counts, "
            f"{count(causal)} as Megatron-LM does, with half of the attention",
            "Machine": f"{machine.count} x {machine.name}, {machine.flops / 1e12:,.3g} TFLOP/s and "
            f"{machine.memory / 1e9:.3g} GB each",
            "Speed": f"{count(self.speed)} tokens a second, {self.speed_from}: {mfu:.0%} MFU "
            f"({mfu * causal / flops:.0%} with half of the attention)",
            "Time": f"{_time(self.seconds)}, evaluations apart",
        }
        if machine.price:
            lines["Cost"] = (
                f"{self.cost:,.2f} USD for {self.seconds / HOUR * machine.count:,.1f} hours at "
                f"{machine.price:.2f} USD (unless given, an assumption of {PRICES_AS_OF})"
            )
        lines["Memory"] = (
            f"{self.memory}; {fits} {machine.memory / 1e6:,.0f} MB. {training.optimizer.kind}, micro-batches "
            f"of {training.micro_batch_windows} windows, activation checkpointing "
            f"{training.activation_checkpointing}" + (f", dp_shard {shards}" if shards > 1 else "")
        )
        if training.objective == "pretrain" and training.pretrained is None:
            lines |= _chinchilla(parameters, tokens, self.vocab_size)
        return "\n".join(
            textwrap.fill(text, 100, initial_indent=f"{name:<10}", subsequent_indent=" " * 10)
            for name, text in lines.items()
        )


def _chinchilla(parameters: float, tokens: float, vocab_size: int) -> dict[str, str]:
    """The loss of so many parameters on so many tokens, and how the same computation is spent best."""
    losses, best = [], []
    for law in (HOFFMANN, BESIROGLU):
        losses.append(f"{law.loss(parameters, tokens):.3f} by {law.source}")
        optimum = law.optimum(parameters, tokens)
        best.append(
            f"{count(optimum[0])} parameters on {count(optimum[1])} tokens, {law.loss(*optimum):.3f} by "
            f"{law.source}"
        )
    far = ""
    if HOFFMANN.loss(parameters, tokens) > math.log(vocab_size):
        far = "; that is worse than guessing, so the laws say nothing of so small a plan"
    elif extrapolates(parameters, tokens):
        far = "; an extrapolation: they were fitted to 70 M to 16 B parameters and 5 B to 500 B tokens"
    return {
        "Loss": f"{' and '.join(losses)}, in nats a token of those authors' text and vocabulary, for which "
        f"alone the laws hold: compare plans by them{far}",
        "Optimum": f"of the same computation: {'; '.join(best)}",
    }


def count(value: float) -> str:
    """Three digits and a unit: 1.24 B, 26.5 T."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:#.3g} {unit}".replace(". ", " ")
    return f"{value:.0f}"


def _time(seconds: float) -> str:
    for unit, size in (("days", DAY), ("hours", HOUR), ("minutes", MINUTE)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} seconds"
