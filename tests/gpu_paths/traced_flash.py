"""Traces of FlashAttention on a pretended GPU, each in a process of its own, as those of `traces.py`."""

# ruff: noqa: I001 (the GPU is pretended before torch is imported)
from tests.gpu_paths.pretended_gpu import pretend, synchronisations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from tests.gpu_paths.traces import BOT, GPU, block
from trainer.model.attention import document_numbers
from trainer.run.attention_timing import Layer, timings


def passes() -> dict[str, Any]:
    """How often the forward and backward graphs of a block with selective recomputation attend."""
    from tests.gpu_paths import generated_code

    block(model="1b", rows="4", length="4096", kind="selective", wanted="flash")
    names = ("_varlen_attn", "_varlen_attn_backward")
    return {
        name: [graph.source.count(f"torch.ops.torch_attn.{name}.default(") for graph in generated_code.graphs]
        for name in names
    }


def choice(masked: str) -> dict[str, Any]:
    """Candidates of a run measured by a clock that counts the times that the host waits for the GPU."""

    def waits(once: Callable[[], object], device: torch.device) -> float:
        before = sum(synchronisations.values())
        once()
        return sum(synchronisations.values()) - before

    with pretend(), GPU:
        tokens = torch.zeros(4, 4096, dtype=torch.int64)
        documents = document_numbers(tokens, BOT) if masked == "true" else None
        layer = Layer(4, 4096, 32, 8, 64, torch.bfloat16, GPU, documents, 40)
        found = timings(("sdpa", "flash"), layer, waits)
    return {"waits": found.milliseconds, "failed": found.failed, "kernels": found.kernels}


def main(name: str, *arguments: str) -> None:
    given = dict(argument.split("=", 1) for argument in arguments)
    kinds: dict[str, Callable[..., dict[str, Any]]] = {"passes": passes, "choice": choice}
    print(json.dumps(kinds[name](**given)))


if __name__ == "__main__":
    main(*sys.argv[1:])
