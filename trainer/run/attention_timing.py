"""How long one layer of attention takes on this device, by backend."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import torch

from trainer.config import TrainingConfig
from trainer.model.attention import Backend, attention, document_mask, flash
from trainer.run.batch import Batch
from trainer.system.errors import first_line

# Passes that are timed, or as many as fit into these seconds, after one that compiles flex and warms up.
REPEATS, SECONDS = 7, 1.0

# The seconds that a call takes on a device.
Clock = Callable[[Callable[[], object], torch.device], float]


@dataclass(frozen=True)
class Layer:
    """What a layer of attention computes in a micro-batch: query [rows, heads, length, head_dim], keys and
    values with `kv_heads` instead, in `dtype`.

    `documents` [rows, length] numbers the documents to keep apart, at most `most_documents` in a row; None if
    they may attend to each other.
    """

    rows: int
    length: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    documents: torch.Tensor | None = None
    most_documents: int | None = None

    @classmethod
    def of(
        cls, training: TrainingConfig, dtype: torch.dtype, batch: Batch, most_documents: int | None
    ) -> Self:
        """That of a run, in one process, for one of its micro-batches."""
        model, processes = training.model, training.parallel.tp
        return cls(
            len(batch),
            batch.seq_len,
            model.n_heads // processes,
            model.n_kv_heads // processes,
            model.head_dim,
            dtype,
            batch.tokens.device,
            batch.documents,
            most_documents,
        )

    def __str__(self) -> str:
        apart = "" if self.documents is None else ", documents apart"
        return (
            f"{self.rows} x {self.length} tokens, {self.heads} heads of {self.head_dim}, "
            f"{self.kv_heads} of keys, {str(self.dtype).removeprefix('torch.')}{apart}"
        )

    def passes(self, backend: Backend) -> Callable[[], object]:
        """A forward and a backward pass. The mask is made once: all layers share it."""
        mask = document_mask(self.documents, self.length, backend, self.most_documents)
        # As blocks lay them out, the heads of a token beside each other.
        query, key, value, gradient = (
            torch.randn(self.rows, self.length, heads, self.head_dim, dtype=self.dtype, device=self.device)
            .transpose(1, 2)
            .requires_grad_()
            for heads in (self.heads, self.kv_heads, self.kv_heads, self.heads)
        )

        def once() -> object:
            mixed = attention(query, key, value, backend, mask)
            return torch.autograd.grad(mixed, (query, key, value), gradient)

        return once


@dataclass
class Timings:
    """`milliseconds` of a forward and backward pass by backend, and why others `failed`. `kernels` is where
    those of flash come from; None without it.
    """

    milliseconds: dict[Backend, float] = field(default_factory=dict)
    failed: dict[Backend, str] = field(default_factory=dict)
    kernels: str | None = None

    def __str__(self) -> str:
        names = {"flash": f"flash ({self.kernels})"}
        return ", ".join(
            [
                *(f"{names.get(name, name)} {taken:.3f} ms" for name, taken in self.milliseconds.items()),
                *(f"{name} cannot run: {reason}" for name, reason in self.failed.items()),
            ]
        )


def timings(possible: Sequence[Backend], layer: Layer, clock: Clock) -> Timings:
    """Times each of the `possible` backends. One that cannot run here is listed with the reason."""
    found = Timings()
    for backend in possible:
        try:
            kernels = flash.activate(layer.device, layer.head_dim) if backend == "flash" else None
            found.milliseconds[backend] = round(1000 * clock(layer.passes(backend), layer.device), 4)
            found.kernels = kernels or found.kernels
        except Exception as error:  # each kernel has its own way to say that it cannot
            found.failed[backend] = first_line(error)
    if layer.device.type == "cuda":
        torch.cuda.empty_cache()
    return found


def median_seconds(once: Callable[[], object], device: torch.device) -> float:
    """Of a few calls, after one that is not counted; each is waited for."""
    once()
    taken: list[float] = []
    while len(taken) < REPEATS and sum(taken) < SECONDS:
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        once()
        torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
